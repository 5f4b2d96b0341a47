"""The parts of `tests/benchmarks/conversion.py`: the records, the methods ("roads"), and the memory of processes."""
