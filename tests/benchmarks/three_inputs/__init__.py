"""The inputs and figures of tests/benchmarks/screen_inputs.py."""
