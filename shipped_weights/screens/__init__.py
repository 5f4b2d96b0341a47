"""Screens with their widgets as truth, for the training of widget detectors."""
