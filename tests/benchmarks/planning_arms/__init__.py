"""The arms and figures of tests/benchmarks/planning.py."""
