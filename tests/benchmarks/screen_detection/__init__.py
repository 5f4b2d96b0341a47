"""Parts of tests/benchmarks/screens.py: screens with their truth, and counts of what was found."""
