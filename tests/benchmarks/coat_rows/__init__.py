"""Parts of `tests/benchmarks/coat.py`."""
