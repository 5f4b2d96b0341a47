"""Data sets: sources, formats, shards, conversion and statistics."""
