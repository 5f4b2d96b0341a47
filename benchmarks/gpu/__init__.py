"""Benchmarks at the shapes of 7B and 8B models; see gpu.py."""
