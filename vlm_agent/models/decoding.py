"""The interface between decoding and model families, key-value caches, and steps that CUDA replays as a graph.

transformers' cache concatenates, which copies the whole history of every sentence for every token. The caches here
write a decoded token into spare room behind the history, and copy nothing else: one grows, the other has a fixed size.
"""

import itertools
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.modeling_outputs import BaseModelOutputWithPast

from vlm_agent.models.attention import WITHIN_SEGMENTS, packed_options, to_device
from vlm_agent.sentences import SCREEN_TOKEN, Sentence
from vlm_agent.sentences.packing import pack

_LOG = logging.getLogger(__name__)

CACHE = "cache" if "cache" in {field.name for field in fields(BaseModelOutputWithPast)} else "past_key_values"
"""The name under which transformers' models take the cache: `cache` from 5.24 on."""

LOGITS_AT_ONCE = 512
"""Positions whose logits a decoder computes at a time; with a vocabulary of 152 k tokens, 300 MB in float32."""


@dataclass(frozen=True)
class Prefill:
    """The result of one forward pass over sentences in one packed row of L tokens.

    `cache`: keys and values (1, key heads, L, width). `starts`: the index of each sentence's first token in the row.
    `best`: the most likely token in place of each supervised one, counted through all sentences in order; `logits`
    returns the logits (vocabulary,) there. `positions`: the position that the model assigned to each token of the row.
    """

    cache: Cache
    starts: Sequence[int]
    best: list[int]
    logits: Callable[[int], torch.Tensor]
    positions: Sequence[int]


@dataclass(frozen=True)
class PrefilledSequence:
    """One processed sentence: its keys and values, the logits (vocabulary,) of the next token and its position."""

    cache: Cache
    logits: torch.Tensor
    position: int


@dataclass
class ReadSentence:
    """What a model has read of one sentence, which grows: token ids and screens, the position of each token, and keys
    and values (1, key heads, tokens, width) in a cache of its own."""

    ids: list[int] = field(default_factory=list)
    screens: list[Any] = field(default_factory=list)
    first_position: int = 0
    positions: list[int] = field(default_factory=list)
    cache: Cache = field(default_factory=lambda: growing_cache())

    @property
    def next_position(self) -> int:
        return self.positions[-1] + 1 if self.positions else self.first_position

    def rest_of(self, sentence: Sentence, first_position: int = 0) -> Sentence:
        """What has not been read of `sentence`, at least its last token; forgets all that it does not begin with, and
        everything where the sentence has another `first_position` (`Decoder.first_position`).

        Equal screens are the same object. No screen is divided, or the last that was read: the next position depends on
        its size.
        """
        ids = sentence.input_ids
        same = min(len(self.ids), len(ids) - 1) if first_position == self.first_position else 0
        self.first_position = first_position
        same = next((at for at in range(same) if self.ids[at] != ids[at]), same)
        pairs = enumerate(zip(self.screens, sentence.screens, strict=False))
        changed = next((number for number, (old, new) in pairs if old is not new), len(self.screens))
        if changed < len(sentence.screens):
            begins = (at for at, id_ in enumerate(ids) if id_ == SCREEN_TOKEN and ids[at - 1] != SCREEN_TOKEN)
            same = min(same, next(itertools.islice(begins, changed, None)))
        while same and ids[same - 1] == SCREEN_TOKEN:
            same -= 1
        rest = sentence.suffix(same)
        del self.ids[same:], self.positions[same:], self.screens[len(sentence.screens) - len(rest.screens) :]
        for layer in self.cache.layers:
            cast("_GrowingLayer", layer).cut_to(same)
        return rest


class Decoder(Protocol):
    """The model interface of decoding; every family has an implementation.

    A decoder may also have `prepare_screen`, a function that pickles: it makes of a screen of a sentence what the
    decoder takes in its place, so that other processes can do this work. The result has the screen's `shape`.
    """

    def prefill(self, sentences: Sequence[Sentence]) -> Prefill | None:
        """None for families, such as encoder-decoder models, in which one pass cannot predict every step."""

    def begin(self, sentence: Sentence) -> PrefilledSequence: ...

    def first_position(self, prompt: int) -> int:
        """The position of the first token of a prompt of so many tokens. Prompts with another first position do not
        share keys and values."""
        return 0

    def step(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Logits (B, S, vocabulary) after the tokens `ids`, int64 (B, S), which are appended to the cache.

        `positions`: int64 (B, S). `mask`: bool (B, S, cached + S), which of the cached tokens and of these each one
        attends to; (B, S, capacity) for a cache of fixed size.
        """


class CausalDecoder(Decoder):
    """Greedy decoding of a causal language model: `transformer` without its head, `logits` float (..., vocabulary) of
    hidden states (..., width)."""

    def __init__(
        self, model: Any, transformer: PreTrainedModel, logits: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        self._model, self.transformer, self._head = model, cast("Any", transformer), logits
        transformer.set_attn_implementation(WITHIN_SEGMENTS)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """A head that was trained in full is float32, also above bfloat16 or quantised layers, and the reverse."""
        return self._head(hidden.to(self._model.get_output_embeddings().weight.dtype))

    @abstractmethod
    def forward(self, row: dict[str, Any], sentences: Sequence[Sentence], **options: Any) -> Any:
        """transformers' output without the head for `row` (`collate`) on the model's device; `options` of the
        transformer."""

    def collate(self, sentences: Sequence[Sentence]) -> dict[str, Any]:
        """One packed row on the host (`sentences/packing.py`)."""
        return pack(sentences)

    def positions(self, row: dict[str, Any]) -> torch.Tensor:
        """The position of each token of a row, int64 (L,); by default its index in its sentence."""
        return row["position_ids"][0]

    def axes(self, positions: torch.Tensor) -> torch.Tensor:
        """The `position_ids` of the transformer for new tokens at `positions`, int64 (B, S)."""
        return positions

    def prefill(self, sentences: Sequence[Sentence]) -> Prefill:
        """One forward pass over all sentences in a packed row, in which no sentence attends to another."""
        row, cache, hidden = self._read(sentences, [sentence.prompt_length for sentence in sentences])
        hidden = hidden.index_select(0, to_device(row["target_places"], hidden.device))
        best = [self.logits(part).argmax(-1) for part in hidden.split(LOGITS_AT_ONCE)]
        return Prefill(
            cache,
            row["cu_seqlens"][:-1].tolist(),
            torch.cat(best).tolist() if best else [],
            lambda index: self.logits(hidden[index]),
            self.positions(row).tolist(),
        )

    def begin(self, sentence: Sentence) -> PrefilledSequence:
        row, cache, hidden = self._read([sentence], [len(sentence)])
        return PrefilledSequence(cache, self.logits(hidden[-1]), int(self.positions(row)[-1]) + 1)

    def _read(
        self, sentences: Sequence[Sentence], prompts: Sequence[int]
    ) -> tuple[dict[str, Any], Cache, torch.Tensor]:
        """The row on the host, its keys and values, and its hidden states (L, width). `prompts`: the tokens of each
        sentence before what is predicted."""
        row, cache, device = self.collate(sentences), growing_cache(), self._model.device
        first = np.repeat([self.first_position(prompt) for prompt in prompts], [len(one) for one in sentences])
        row["position_ids"] = row["position_ids"] + torch.from_numpy(first)
        there = tree_map_only(torch.Tensor, partial(to_device, device=device), row)
        options = packed_options(self.transformer, row["cu_seqlens"], device) | {"use_cache": True, CACHE: cache}
        return row, cache, self.forward(there, sentences, **options).last_hidden_state[0]

    def read_on(self, parts: Sequence[Sentence], before: Sequence[ReadSentence]) -> torch.Tensor:
        """Reads the next part of each of several sentences in one packed row, and adds it to what was read `before`:
        the logits (sentences, vocabulary) after each."""
        bounds = np.cumsum([0, *map(len, parts)], dtype=np.int32)
        device, shift = self._model.device, np.repeat([one.next_position for one in before], np.diff(bounds))
        caches = [one.cache for one in before]
        options = packed_options(self.transformer, bounds, device, caches=caches) | {"use_cache": False}
        if any(part.screens for part in parts):
            row = self.collate(parts)
            row["position_ids"] = row["position_ids"] + torch.from_numpy(shift)
            positions = self.positions(row)
            there = tree_map_only(torch.Tensor, partial(to_device, device=device), row)
            output = self.forward(there, parts, **options)
        else:
            positions = torch.from_numpy(shift + np.arange(len(shift)) - np.repeat(bounds[:-1], np.diff(bounds)))
            ids = to_device(np.array([[id_ for part in parts for id_ in part.input_ids]]), device)
            output = self.transformer(
                input_ids=ids, position_ids=self.axes(to_device(positions[None], device)), **options
            )
        for part, one, new in zip(parts, before, positions.split(np.diff(bounds).tolist()), strict=True):
            one.ids += part.input_ids
            one.screens += part.screens
            one.positions += new.tolist()
        return self.logits(output.last_hidden_state[0].index_select(0, to_device(bounds[1:] - 1, device)))

    def step(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: Cache) -> torch.Tensor:
        device = self._model.device
        decoded = self.transformer(
            input_ids=ids.to(device),
            attention_mask=mask[:, None].to(device),
            position_ids=self.axes(positions.to(device)),
            use_cache=True,
            **{CACHE: cache},
        )
        return self.logits(decoded.last_hidden_state)


class SourceBatch(Protocol):
    """The state of decoding from B encoded sources: encoder states, and keys and values of the decoder.

    `logits`: (B, vocabulary) of the first token of each answer.
    """

    logits: torch.Tensor

    def keep(self, rows: Sequence[int]) -> None:
        """Drops all rows except `rows`, which become rows 0, 1, … in this order."""


@runtime_checkable
class SourceDecoder(Decoder, Protocol):
    """The interface of an encoder-decoder model, which writes the answers to many sources together.

    A source is a sentence without supervised tokens.
    """

    def begin_batch(self, sentences: Sequence[Sentence]) -> SourceBatch: ...

    def step_batch(self, ids: torch.Tensor, batch: SourceBatch) -> torch.Tensor:
        """Logits (B, vocabulary) after one more token of each row, `ids` int64 (B,)."""


_SPARE_TOKENS = 256
"""Room for tokens behind the history. More tokens cost a copy, after which the room is half as large as the history."""


class _GrowingLayer(DynamicLayer):
    """`keys` and `values` are views of the first tokens of larger buffers; tensors set from outside are copied into a
    buffer when they grow."""

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
        self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        self._buffers: dict[str, torch.Tensor] = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self._appended("keys", self.keys, key_states)
        self.values = self._appended("values", self.values, value_states)
        return self.keys, self.values

    def cut_to(self, tokens: int) -> None:
        """Keeps the first `tokens`."""
        if self.is_initialized:
            self.keys, self.values = (cast("torch.Tensor", part)[..., :tokens, :] for part in (self.keys, self.values))

    def _appended(self, name: str, stored: torch.Tensor | None, new: torch.Tensor) -> torch.Tensor:
        assert stored is not None  # noqa: S101 (`lazy_initialization` sets both)
        start, end = stored.shape[-2], stored.shape[-2] + new.shape[-2]
        buffer = self._buffers.get(name)
        if buffer is None or stored.data_ptr() != buffer.data_ptr() or end > buffer.shape[-2]:
            room = max(_SPARE_TOKENS, end // 2) if start else _SPARE_TOKENS
            buffer = self._buffers[name] = new.new_empty(*new.shape[:-2], end + room, new.shape[-1])
            buffer[..., :start, :] = stored
        buffer[..., start:end, :] = new
        return buffer[..., :end, :]


def growing_cache() -> Cache:
    return Cache(layer_class_to_replicate=_GrowingLayer)


class _FixedLayer(DynamicLayer):
    """New tokens are written at `places`, int64 (new tokens,), of buffers that keep size and address."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, places: torch.Tensor) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self.keys, self.values, self._places = keys, values, places

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = cast("torch.Tensor", self.keys), cast("torch.Tensor", self.values)
        return keys.index_copy_(2, self._places, key_states), values.index_copy_(2, self._places, value_states)


def fixed_cache(cache: Cache, rows: torch.Tensor, columns: torch.Tensor, capacity: int, places: torch.Tensor) -> Cache:
    """A cache with room for `capacity` tokens in each of B rows, which takes over tokens of `cache` and empties it.

    `rows` int64 (B, 1) and `columns` int64 (B, tokens): the tokens to take over. `places` int64 (new tokens,): where a
    step writes, read at every step. Layer by layer, so that both caches are never whole at the same time.
    """
    layers: list[Any] = []
    while cache.layers:
        layer: Any = cache.layers.pop(0)
        keys, values = (_taken_over(part, rows, columns, capacity) for part in (layer.keys, layer.values))
        layers.append(_FixedLayer(keys, values, places))
    return Cache(layers=layers)


def _taken_over(states: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, capacity: int) -> torch.Tensor:
    # Zeros, because attention multiplies what a mask excludes by 0.
    buffer = states.new_zeros(len(rows), states.shape[1], capacity, states.shape[3])
    buffer[:, :, : columns.shape[1]] = states.transpose(1, 2)[rows, columns].transpose(1, 2)
    return buffer


class Replayed:
    """`step`, a function of an int64 tensor (size,), called many times; on CUDA as a graph, else as it is.

    Launched one by one, the kernels of a decoding step take several times as long as the GPU needs for them. The first
    call runs as it is on another stream, where kernels are loaded and chosen. The second one is captured, and every
    call from then on replays all kernels with one launch. So `step` must have results of equal sizes, keep its state in
    tensors, and never wait for the device. Each call overwrites the results of the one before. Where a capture fails,
    a line of the log says so, and steps of this process run as they are.
    """

    _has_failed: ClassVar[bool] = False
    _newest: ClassVar[Any] = None
    """The newest graph. It keeps the memory of captures alive, which the next one uses again."""

    def __init__(self, step: Callable[[torch.Tensor], Any], size: int, device: torch.device) -> None:
        self._step, self._input = step, torch.zeros(size, dtype=torch.int64, device=device)
        self._stream = _other_stream(device) if can_replay(device) and not Replayed._has_failed else None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._results: Any = None

    def __call__(self, values: torch.Tensor) -> Any:
        """The results of `step` for `values`, int64 (size,) on the host."""
        self._input.copy_(values, non_blocking=True)
        if self._stream is None:
            return self._step(self._input)
        if self._results is None:
            return self._warmed_up(self._stream)
        if self._graph is None:
            self._graph = self._captured(self._stream)
        if self._graph is None:
            self._stream = None
            return self._step(self._input)
        self._graph.replay()
        return self._results

    def _warmed_up(self, stream: torch.cuda.Stream) -> Any:
        current = torch.cuda.current_stream(stream.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            self._results = self._step(self._input)
        current.wait_stream(stream)
        return self._results

    def _captured(self, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph | None:
        torch.cuda.synchronize(stream.device)
        graph, newest = torch.cuda.CUDAGraph(), Replayed._newest
        try:
            with torch.cuda.stream(stream):
                # Other threads, which read episodes ahead, may allocate pinned memory meanwhile.
                graph.capture_begin(None if newest is None else newest.pool(), capture_error_mode="thread_local")
                try:
                    self._results = self._step(self._input)
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            Replayed._has_failed = True
            reason = str(error).strip().partition("\n")[0]
            _LOG.warning("decoding runs without CUDA graphs, which is several times slower: %s", reason)
            return None
        Replayed._newest = graph
        return graph


def can_replay(device: torch.device) -> bool:
    return device.type == "cuda"


@cache
def _other_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all steps: every stream has its own workspace for matrix products."""
    return torch.cuda.Stream(device)
