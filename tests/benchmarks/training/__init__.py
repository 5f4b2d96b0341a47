"""The parts of `tests/benchmarks/training.py`: the shapes, the episodes, the methods ("roads"), and their figures."""
