"""Which reader a model needs."""

from peft import PeftModel
from transformers import PreTrainedModel

from vlm_agent.agents.greedy import Reader
from vlm_agent.agents.llama_vit_reader import LlamaViTReader
from vlm_agent.agents.qwen_vl_reader import QwenVLReader
from vlm_agent.models.llama_vit import LlamaViT


def reader_of(model: PreTrainedModel | PeftModel) -> Reader:
    """An adapter's layers are part of the model that it is upon."""
    inner = model.get_base_model() if isinstance(model, PeftModel) else model
    return (LlamaViTReader if isinstance(inner, LlamaViT) else QwenVLReader)(inner)
