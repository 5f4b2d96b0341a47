"""Ratios: how fast, how large and how safe the package is beside another way to do the same."""
