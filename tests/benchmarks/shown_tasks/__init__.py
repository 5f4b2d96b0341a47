"""What tests/benchmarks/demonstrations.py measures: tasks that failed, again with a demonstration."""
