"""Qwen-VL (2023), the base of the paper's UI-VLM, without the remote code that its checkpoint brings.

It is a `LlamaViT`: the vision tower and the resampler are here, the language model is transformers' Qwen2, and
`convert` turns the published folder into one that `LlamaViT.from_pretrained` reads. docs/qwen_vl_2023.md tells what
maps to what and what is left out.

Source: Bai et al., "Qwen-VL", arXiv 2308.12966, and the published configuration, weight index and model files.
"""

from vlm_agent.models.qwen_vl_2023.resampler import Resampler
from vlm_agent.models.qwen_vl_2023.tower import QwenVLTower, QwenVLTowerConfig

__all__ = ["QwenVLTower", "QwenVLTowerConfig", "Resampler"]
