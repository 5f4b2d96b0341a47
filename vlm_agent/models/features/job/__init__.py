"""Extracts the features of all screens in a folder of shards (`vlm-agent features`).

`plan.py` has what decides the output, `loading.py` reads and prepares screens ahead of the model, `extraction.py`
writes the files of one shard, `run.py` fills the whole folder.
"""

from vlm_agent.models.features.job.loading import default_workers
from vlm_agent.models.features.job.plan import job
from vlm_agent.models.features.job.run import Options, extract_features, finish

__all__ = ["Options", "default_workers", "extract_features", "finish", "job"]
