"""Recipes: every setting of a run, read from YAML and checked."""
