"""Training runs that differ in single keys of a recipe: what `tests/benchmarks/auto_ui.py` and `coat.py` share."""
