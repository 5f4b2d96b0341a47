"""The features of all screens in a folder of shards, memory-mapped.

    DIR/manifest.json                        written last: extractor, form, size, dtype, shards, sha256 of each file
    DIR/google_apps/NAME.npy                 float16 (steps, T, D): the steps of shard google_apps/NAME.parquet in order
    DIR/google_apps/NAME.pixels.npy          uint8 (steps, 16): a digest of each step's decoded pixels
    DIR/google_apps/NAME.sums.npy            uint32 (steps,): the CRC-32 of each step's features
    DIR/.features/                           the plan, the lock, and an entry for each complete shard

`layout.py` has the names and checks single files, `reading.py` has the `FeatureStore`, `pixels.py` finds features by
pixels.
"""

from vlm_agent.models.features.store.reading import FeatureStore, extraction_remedy

__all__ = ["FeatureStore", "extraction_remedy"]
