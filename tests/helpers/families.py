"""Every family of models at its smallest, with its tokenizer and its way to read, so that one claim is made of all."""

from dataclasses import dataclass
from functools import cache

import torch
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from helpers import tiny, tiny_qwen
from vlm_agent.models.attention import choose_attention
from vlm_agent.models.family import Processor, processor_of
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.recipe.model import Lora, TrainedParts
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.trajectory import TrajectorySentences

NAMES = ("llama_vit", *tiny_qwen.FAMILIES)


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
    if name == "llama_vit":
        words = tiny.tokenizer()
        model = tiny.model(len(words))
        choose_attention(model.vision, model.language_model)
    else:
        recipe = tiny_qwen.recipe(name)
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


def gradients(model: torch.nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of every weight that trains, by name."""
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
