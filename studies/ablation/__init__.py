"""Training runs that differ in single keys of a recipe: what the studies of papers share."""
