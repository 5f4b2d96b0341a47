"""Synthetic pretraining of the embedded base: drawn screens, walks over simulated phones, lessons."""
