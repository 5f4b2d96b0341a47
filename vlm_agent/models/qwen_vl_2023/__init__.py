"""Qwen-VL (2023), the base of the paper's UI-VLM, without the remote code of its checkpoint.

It is a `LlamaViT` with the vision tower and the resampler of this package and transformers' Qwen2. `convert` writes a
folder for `LlamaViT.from_pretrained` from the published one. README.md describes the mapping and what is
left out.

Source: Bai et al., "Qwen-VL", arXiv 2308.12966, and the published configuration, weight index and model files.
"""

from vlm_agent.models.llama_vit.model import ProjectorKind
from vlm_agent.models.qwen_vl_2023.tower import QwenVLTower, QwenVLTowerConfig, Resampler
from vlm_agent.sentences.templates import ChatTemplate

__all__ = ["RESAMPLER", "QwenVLTower", "QwenVLTowerConfig", "Resampler"]

QWEN_2023 = ChatTemplate(before_screen="<img>", cue="</img>\nAction: ", next_turn="\n")
"""The base model: image marks, no turns; <|endoftext|> ends an action."""

RESAMPLER = ProjectorKind(Resampler, pools=False, bicubic=True, template=QWEN_2023)
