"""Parts of `tests/benchmarks/auto_ui.py`."""
