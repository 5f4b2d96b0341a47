"""Phones over the Android Debug Bridge (ADB)."""
