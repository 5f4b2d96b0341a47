"""Packed batches and a model that is small enough to compute its figures by hand."""

from dataclasses import replace
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional

import vlm_agent.training  # noqa: F401 (makes torchvision importable before peft looks for it)
from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.models.cost import NO_WORK, Flops, TrainingFlops, Workload
from vlm_agent.recipe.model import TrainedParts
from vlm_agent.sentences import IGNORED, NO_ACTION

WORDS = 7


def pack(actions: list[tuple[str | None, list[int]]], gap: int = 2, first: int = 0) -> dict:
    """A row of actions, each after `gap` tokens that are read; a name of None is what is learned and is no action."""
    ids, labels, kinds = [], [], []
    for name, tokens in actions:
        ids += [first] * gap + tokens
        labels += [IGNORED] * gap + tokens
        kinds += [NO_ACTION] * gap + [NO_ACTION if name is None else ACTION_NAMES.index(name)] * len(tokens)
    row = {"input_ids": ids, "labels": labels, "kinds": kinds}
    return {name: torch.tensor([values]) for name, values in row.items()} | {"about": [f"{first}[0:{len(actions)}]"]}


class CostOfTokens:
    """1e9 FLOPs a token."""

    def workload(self, batch: dict) -> Workload:
        return replace(NO_WORK, tokens=batch["input_ids"].numel())

    def flops(self, load: Workload, *_) -> Flops:
        return Flops(forward=1e9 * load.tokens)


FLOPS = TrainingFlops(CostOfTokens(), TrainedParts(), rank=8, checkpointed=0)


class NextWord(nn.Module):
    """Says a word from the one before alone, with dropout while it trains."""

    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(WORDS, WORDS)
        self.dropout = nn.Dropout(0.3)

    def forward(self, input_ids, labels, num_items_in_batch=None):
        supervised = labels[:, 1:] != IGNORED
        logits = self.dropout(self.table(input_ids))[:, :-1][supervised]
        losses = functional.cross_entropy(logits, labels[:, 1:][supervised], reduction="none")
        total = losses.numel() if num_items_in_batch is None else num_items_in_batch
        return SimpleNamespace(
            loss=losses.sum() / total, token_losses=losses.detach(), logits=logits, element_loss=None
        )


def knows_successors(words: dict[int, int]) -> NextWord:
    """A model that says `words[word]` after `word`, and 0 after any other."""
    model = NextWord()
    with torch.no_grad():
        model.table.weight.zero_()
        for word in range(WORDS):
            model.table.weight[word, words.get(word, 0)] = 5.0
    return model
