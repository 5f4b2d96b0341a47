"""Helpers that tests share: tiny models, fake devices and servers, example data."""
