"""Which reader a model needs."""

from torch import nn

from vlm_agent.agents.greedy import Reader
from vlm_agent.agents.llama_vit_reader import LlamaViTReader
from vlm_agent.agents.qwen_vl_reader import QwenVLReader
from vlm_agent.models.adapters import without_adapter
from vlm_agent.models.llama_vit import LlamaViT


def reader_of(model: nn.Module) -> Reader:
    """For a model of any family, with an adapter upon it or without."""
    inner = without_adapter(model)
    return (LlamaViTReader if isinstance(inner, LlamaViT) else QwenVLReader)(inner)
