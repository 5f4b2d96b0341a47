"""A tiny encoder-decoder family: the encoder reads goal, history and screen, the decoder writes one action.

A sentence with n actions becomes n rows of one batch, whose labels are a sequence of their own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from helpers import tiny
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel, T5Config, T5ForConditionalGeneration
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from vlm_agent.models.cost import Flops, Workload
from vlm_agent.models.decoding import CACHE, Decoder, PrefilledSequence
from vlm_agent.models.family import FAMILIES, ModelFamily, Processor
from vlm_agent.models.loss import SupervisedOutput, supervise
from vlm_agent.models.pretrained import source_configuration
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN, Sentence
from vlm_agent.sentences.image_sizes import FixedScreens
from vlm_agent.sentences.packing import supervision_columns
from vlm_agent.sentences.templates import PLAIN

NAME = "screen_t5"
CONFIG = {"model_type": NAME, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
_GRID = (4, 2)


class ScreenT5Config(T5Config):
    model_type = NAME


class ScreenT5(PreTrainedModel):
    config_class = ScreenT5Config
    parts = {  # noqa: RUF012 (a constant)
        "vision": "vision",
        "projector": "projector",
        "embeddings": "t5.shared",
        "language_model": "t5",
        "norm": "t5.decoder.final_layer_norm",
        "head": "t5.lm_head",
    }

    def __init__(self, config: ScreenT5Config):
        super().__init__(config)
        self.vision = nn.Linear(3 * _GRID[0] * _GRID[1], 8)
        self.projector = nn.Linear(8, config.d_model)
        self.t5 = T5ForConditionalGeneration(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.t5.get_input_embeddings()

    def get_output_embeddings(self) -> nn.Module:
        return self.t5.get_output_embeddings()

    def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, screens: torch.Tensor) -> torch.Tensor:
        """`input_ids` (B, L) with one `SCREEN_TOKEN` a screen, `screens` uint8 (N, 3, height, width) in reading order.

        Returns (B, L, width).
        """
        is_screen = input_ids == SCREEN_TOKEN
        seen = self.vision(functional.adaptive_avg_pool2d(screens.float() / 255, _GRID).flatten(1))
        embeddings = self.t5.shared(input_ids.masked_fill(is_screen, 0))
        embeddings = embeddings.masked_scatter(is_screen[..., None], self.projector(seen))
        return self.t5.encoder(inputs_embeds=embeddings, attention_mask=attention_mask).last_hidden_state

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        screens: torch.Tensor,
        shift_labels: torch.Tensor,
        loss_weights: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> SupervisedOutput:
        encoded = self.encode(input_ids, attention_mask, screens)
        starts = shift_labels.new_full((len(shift_labels), 1), self.config.pad_token_id)
        written = torch.cat([starts, shift_labels[:, :-1].clamp(min=0)], dim=1)
        hidden = self.t5.decoder(
            input_ids=written, encoder_hidden_states=encoded, encoder_attention_mask=attention_mask
        ).last_hidden_state
        return supervise(hidden, shift_labels, self.t5.lm_head, num_items_in_batch, loss_weights, shift=False)


def collate(sentences: list[Sentence]) -> dict:
    """`input_ids`, `attention_mask` (B, L) for the encoder; `shift_labels`, `kinds` (B, L') for the decoder."""
    histories, targets, screens = [], [], []
    for sentence in sentences:
        for start, end in runs(sentence):
            histories.append(sentence.input_ids[:start])
            targets.append((sentence, slice(start, end)))
            screens += sentence.prefix(start).screens
    weights = padded([one.weights[cut] for one, cut in targets], 1.0)
    roles = padded([one.roles[cut] for one, cut in targets], 0)
    columns = supervision_columns(roles, weights)
    return {
        "input_ids": torch.tensor(padded(histories, 0)),
        "attention_mask": torch.tensor(padded([[1] * len(ids) for ids in histories], 0)),
        "screens": torch.from_numpy(np.stack(screens)),
        "shift_labels": torch.tensor(padded([one.labels[cut] for one, cut in targets], IGNORED)),
        "kinds": torch.tensor(padded([one.kinds[cut] for one, cut in targets], -1)),
        "about": [sentence.about for sentence in sentences],
        **{name: column.view(len(targets), -1) for name, column in columns.items()},
    }


def runs(sentence: Sentence) -> list[tuple[int, int]]:
    """(first, last + 1) of each run of supervised tokens."""
    learned = [False, *(label != IGNORED for label in sentence.labels), False]
    edges = [at for at, (before, now) in enumerate(pairwise(learned)) if before != now]
    return list(zip(edges[::2], edges[1::2], strict=True))


def padded(rows: Sequence[list], padding: float) -> list[list]:
    longest = max(map(len, rows))
    return [row + [padding] * (longest - len(row)) for row in rows]


class _Cache(EncoderDecoderCache):
    encoded: torch.Tensor


class _Batch:
    """A `SourceBatch`."""

    def __init__(self, model: ScreenT5, columns: dict) -> None:
        self._model, self._mask = model, columns["attention_mask"]
        self._encoded = model.encode(columns["input_ids"], self._mask, columns["screens"])
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self.logits = self.next(torch.full((len(self._mask),), model.config.pad_token_id))

    def next(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self._model.t5.decoder(
            input_ids=ids[:, None],
            encoder_hidden_states=self._encoded,
            encoder_attention_mask=self._mask,
            use_cache=True,
            **{CACHE: self._cache},
        ).last_hidden_state
        return self._model.t5.lm_head(hidden)[:, -1]

    def keep(self, rows: Sequence[int]) -> None:
        self._encoded, self._mask = self._encoded[list(rows)], self._mask[list(rows)]
        self._cache.batch_select_indices(torch.tensor(rows))


class ScreenT5Decoder(Decoder):
    def __init__(self, model: ScreenT5):
        self._model = model

    def prefill(self, sentences: Sequence[Sentence]) -> None:
        """Every action has an encoder input of its own."""

    def begin(self, sentence: Sentence) -> PrefilledSequence:
        ids = torch.tensor([sentence.input_ids])
        cache = _Cache(DynamicCache(), DynamicCache())
        cache.encoded = self._model.encode(ids, torch.ones_like(ids), torch.from_numpy(np.stack(sentence.screens)))
        return PrefilledSequence(cache, self._next(torch.tensor([[self._model.config.pad_token_id]]), cache)[0, -1], 1)

    def step(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: _Cache) -> torch.Tensor:
        return self._next(ids, cache)

    def _next(self, ids: torch.Tensor, cache: _Cache) -> torch.Tensor:
        t5 = self._model.t5
        hidden = t5.decoder(
            input_ids=ids, encoder_hidden_states=cache.encoded, use_cache=True, **{CACHE: cache}
        ).last_hidden_state
        return t5.lm_head(hidden)

    def begin_batch(self, sentences: Sequence[Sentence]) -> _Batch:
        ids = [sentence.input_ids for sentence in sentences]
        columns = {"input_ids": padded(ids, 0), "attention_mask": padded([[1] * len(row) for row in ids], 0)}
        screens = [screen for sentence in sentences for screen in sentence.screens]
        return _Batch(
            self._model,
            {name: torch.tensor(rows) for name, rows in columns.items()}
            | {"screens": torch.from_numpy(np.stack(screens))},
        )

    def step_batch(self, ids: torch.Tensor, batch: _Batch) -> torch.Tensor:
        return batch.next(ids)


class ScreenT5Cost:
    """6 N FLOPs a token."""

    def __init__(self, config: ScreenT5Config):
        self._width, self._weights = config.d_model, 12 * config.d_model**2 * config.num_layers

    layers = 1

    def workload(self, batch: Mapping[str, Any]) -> Workload:
        tokens = batch["input_ids"].numel() + batch["shift_labels"].numel()
        supervised = int((batch["shift_labels"] != IGNORED).sum())
        return Workload(tokens, 0, supervised, Counter({tiny.SCREEN: len(batch["screens"])}))

    def flops(self, load: Workload, train, rank: int, checkpointed: int) -> Flops:
        return Flops(2 * self._weights * load.tokens, 4 * self._weights * load.tokens)

    def activation_bytes(self, load: Workload, train, lora, precision, checkpointed: int) -> int:
        return round(load.tokens * self._width * precision.bytes)


class ScreenT5Family(ModelFamily):
    model = ScreenT5

    def configure(self, recipe, tokenizer) -> PretrainedConfig:
        marks = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
        return source_configuration(recipe.vlm, vocab_size=len(tokenizer), **marks)

    def processor(self, config: PretrainedConfig) -> Processor:
        return Processor(FixedScreens(tiny.SCREEN, 1), PLAIN, collate)

    def decoder(self, model: ScreenT5) -> ScreenT5Decoder:
        return ScreenT5Decoder(model)

    def cost(self, config: PretrainedConfig) -> ScreenT5Cost:
        return ScreenT5Cost(config)


FAMILY = ScreenT5Family()


def register() -> None:
    """What a line in `FAMILIES` does."""
    AutoConfig.register(NAME, ScreenT5Config, exist_ok=True)
    FAMILIES[NAME] = f"{__name__}:FAMILY"
