"""Shards: episodes as Parquet, their index and their columns."""
