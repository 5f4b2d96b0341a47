"""Scoring on Android in the Zoo (AitZ, Zhang et al. 2024): its rules of a right step, and its table of metrics."""
