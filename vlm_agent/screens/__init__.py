"""Screens: understanding them and drawing on them."""
