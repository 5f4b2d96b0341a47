"""The parts of `tests/benchmarks/training.py`: the shapes, the episodes, the roads through them, and their figures."""
