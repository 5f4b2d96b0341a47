"""Every family of models at its smallest, with its tokenizer and its way to read, so that one claim is made of all."""

from dataclasses import dataclass
from functools import cache

import torch
from helpers import tiny
from helpers.models import tiny_llava, tiny_qwen
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.models.attention import choose_attention
from vlm_agent.models.family import Processor, processor_of
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.qwen_vl_2023 import tower  # noqa: F401 (registers its configuration)
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.recipe.model import Lora, TrainedParts
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.trajectory import TrajectorySentences

NAMES = ("llama_vit", *tiny_qwen.FAMILIES)

LLAVA = "llava"
QWEN_VL_2023 = "qwen_vl_2023"
"""A Llama+ViT with the vision tower and the resampler of Qwen-VL (2023)."""
_TOWER_2023 = {
    "model_type": "qwen_vl_vit",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "patch_size": 8,
}


@dataclass
class Family:
    """`model` has random weights, float32, in evaluation mode."""

    model: PreTrainedModel | PeftModel
    words: PreTrainedTokenizerBase
    processor: Processor

    @property
    def sentences(self) -> TrajectorySentences:
        return self.processor.sentences(self.words, tiny.LANGUAGE)

    def row(self, *sentences: Sentence) -> dict:
        """What the model takes, of sentences laid end to end."""
        row = self.processor.collate(list(sentences))
        return {name: value for name, value in row.items() if name not in NOT_FOR_MODELS}


def family(name: str) -> Family:
    if name in ("llama_vit", QWEN_VL_2023):
        words = tiny.tokenizer()
        square = {"screen_size": (64, 64), "visual_grid": (4, 4)}
        long = {"ntk_length": 30, "log_n_length": 30}
        options = {"vision": _TOWER_2023, "projector": "resampler"} | square | long if name == QWEN_VL_2023 else {}
        model = tiny.model(len(words), **options)
        choose_attention(model.vision, model.language_model)
    else:
        recipe = tiny_llava.recipe() if name == LLAVA else tiny_qwen.recipe(name)
        words = tiny_qwen.tokenizer(recipe)
        model = tiny_qwen.model(recipe, words)
    return Family(model, words, processor_of(model.config))


@cache
def shared(name: str) -> Family:
    """One for all tests that change nothing of it."""
    return family(name)


def adapted(name: str) -> Family:
    """LoRA on the language model, as recipes have it, with adapters that already do something."""
    given = family(name)
    torch.manual_seed(1)
    projector = "full" if name == "llama_vit" else "frozen"
    model = choose_trained_weights(given.model, TrainedParts(projector=projector), Lora(rank=2, dropout=0.0))
    with torch.no_grad():
        for weight_name, weight in model.named_parameters():
            if "lora_B" in weight_name:
                weight.normal_(std=0.1)
    return Family(model.eval(), given.words, given.processor)


def fit(model: torch.nn.Module, row: dict, steps: int) -> None:
    """`steps` optimizer steps on one row, in place, so that answers agree with some of its actions."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**row).loss.backward()
        optimizer.step()


def gradients(model: torch.nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradient of every weight that trains, by name."""
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
