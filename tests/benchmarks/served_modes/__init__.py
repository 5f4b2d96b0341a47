"""The modes, stages and figures of tests/benchmarks/planner_modes.py."""
