"""The parts of `tests/benchmarks/conversion.py`: the records, the roads through them, and a process's memory."""
