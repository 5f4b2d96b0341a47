"""Annotates a folder of shards (`vlm-agent annotate`).

`settings.py` has what decides the output, `shards.py` writes one shard, `run.py` estimates the cost and fills the whole
folder, and `finish.py` applies the edits of a review and writes the manifest.
"""

from vlm_agent.annotation.job.finish import finish
from vlm_agent.annotation.job.run import annotate
from vlm_agent.annotation.job.settings import AnnotationSettings

__all__ = ["AnnotationSettings", "annotate", "finish"]
