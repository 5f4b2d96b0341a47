"""Phones over ADB."""
