"""The cost of an Auto-UI model: T5's encoder, the fusion, T5's decoder and the head.

Padding is not counted: a batch costs what its sentences cost. T5's attention adds a trained bias to its scores, so each
layer keeps a bias of every head, query and key for the backward pass: 4 bytes, in mixed precision 2 more for a copy. It
is the largest part for long sources. An attention without a fused kernel, as on a CPU, keeps the scores, too.

Activations of a layer and token, with d wide states, i inner and f feed-forward numbers, e bytes a number (2 in
bfloat16, else 4):

    norms         8 d        each: float32 copies of its input and its result
    inputs        e d        of each map; in mixed precision every map has a cast copy, in float32 maps share it
    attention     4 e i      queries, keys, values, result; cross-attention keeps keys and values by source token
    feed-forward  2 e f, 5 e f if gated: results of the maps, of the activation and of the product
    dropout       2 d + f    bytes of masks, and one for each score
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vlm_agent.models.auto_ui.model import AutoUiConfig
from vlm_agent.models.cost import CostModel, Flops, Precision, Workload, causal_pairs, linear_flops, logit_bytes
from vlm_agent.recipe.model import Lora, TrainedParts

Map = tuple[int, int]
"""(inputs, outputs) of a linear map."""


def workload(sources: Sequence[int], targets: Sequence[int], vectors: Sequence[int]) -> Workload:
    """The workload of sentences with these numbers of source tokens, target tokens and feature vectors."""
    source, target, seen = (np.asarray(counts, np.int64) for counts in (sources, targets, vectors))
    return Workload(
        tokens=int(source.sum() + target.sum()),
        pairs=causal_pairs(target),
        supervised=int(target.sum()),
        screens={},
        source_tokens=int(source.sum()),
        source_pairs=int((source**2).sum()),
        cross_pairs=int((source * target).sum()),
        vectors=int(seen.sum()),
        vector_pairs=int((source * seen).sum()),
    )


@dataclass(frozen=True)
class Reached:
    """Which states need a gradient: those before the first layers, the encoder's, the fused ones, the decoder's."""

    first: bool
    encoded: bool
    fused: bool

    @classmethod
    def by(cls, train: TrainedParts) -> "Reached":
        first = train.embeddings != "frozen"
        encoded = first or train.language_model != "frozen"
        return cls(first, encoded, encoded or train.projector != "frozen")


class AutoUiCost(CostModel):
    def __init__(self, config: AutoUiConfig) -> None:
        text = config.text_config
        self.width, self.inner, self.ffn = text.d_model, text.num_heads * text.d_kv, text.d_ff
        self.heads, self.vocabulary, self.size = text.num_heads, text.vocab_size, config.features["size"]
        self.encoder_layers, self.decoder_layers = text.num_layers, text.num_decoder_layers or text.num_layers
        self.gates = 2 if text.is_gated_act else 1

    def workload(self, batch: Mapping[str, Any]) -> Workload:
        return workload(batch["source_lengths"], batch["target_lengths"], batch["feature_counts"])

    @property
    def layers(self) -> int:
        """The encoder's are the lowest."""
        return self.encoder_layers + self.decoder_layers

    def _checkpointed(self, count: int) -> tuple[int, int]:
        """How many of the lowest `count` layers are the encoder's and the decoder's."""
        encoder = min(count, self.encoder_layers)
        return encoder, count - encoder

    def flops(self, load: Workload, train: TrainedParts, rank: int, checkpointed: int) -> Flops:
        reached = Reached.by(train)
        encoder = self._encoder(load, train, rank, reached)
        decoder = self._decoder(load, train, rank, reached)
        above = reached.fused or train.norm != "frozen"
        head = linear_flops([(self.width, self.vocabulary)], load.supervised, train.head, rank, above)
        encoders, decoders = self._checkpointed(checkpointed)
        again = encoder.forward * encoders / self.encoder_layers if reached.encoded else 0
        again += decoder.forward * decoders / self.decoder_layers if reached.fused else 0
        table = 2 * rank * self.width * load.tokens if train.embeddings == "lora" else 0
        return sum(
            (self._fusion(load, train, rank, reached), decoder, head, Flops(table, 2 * table)),
            encoder + Flops(recomputed=again),
        )

    def _encoder(self, load: Workload, train: TrainedParts, rank: int, reached: Reached) -> Flops:
        kind, rows, layers = train.language_model, load.source_tokens, self.encoder_layers
        lowest = linear_flops(self._projections, rows, kind, rank, reached.first or kind == "full")
        others = linear_flops(self._projections, rows, kind, rank, reached.encoded) * (layers - 1)
        later = linear_flops([self._output, *self._feed_forward], rows, kind, rank, reached.encoded) * layers
        attention = _attention(self.inner, load.source_pairs, reached.encoded, reached.encoded) * layers
        return lowest + others + later + attention

    def _decoder(self, load: Workload, train: TrainedParts, rank: int, reached: Reached) -> Flops:
        """The first layer's self-attention precedes the encoder's states; everything after its cross-attention depends
        on them."""
        kind, rows, others = train.language_model, load.tokens - load.source_tokens, self.decoder_layers - 1
        query, key_value = self._projections[:1], self._projections[1:]
        after = [self._output, *self._feed_forward]
        first = linear_flops(self._projections, rows, kind, rank, reached.first or kind == "full")
        first += linear_flops([self._output, *query], rows, kind, rank, reached.encoded)
        first += _attention(self.inner, load.pairs, reached.encoded, reached.encoded)
        first += _attention(self.inner, load.cross_pairs, reached.encoded, reached.fused)
        later = linear_flops([*self._projections, self._output, *query], rows, kind, rank, reached.fused)
        later += _attention(self.inner, load.pairs + load.cross_pairs, reached.fused, reached.fused)
        every = linear_flops(after, rows, kind, rank, reached.fused)
        every += linear_flops(key_value, load.source_tokens, kind, rank, reached.fused)
        return first + later * others + every * (others + 1)

    def _fusion(self, load: Workload, train: TrainedParts, rank: int, reached: Reached) -> Flops:
        kind, square = train.projector, (self.width, self.width)
        trained = kind != "frozen"
        vectors = linear_flops([(self.size, self.width)], load.vectors, kind, rank, False)
        vectors += linear_flops([square, square], load.vectors, kind, rank, trained)
        query = linear_flops([square], load.source_tokens, kind, rank, reached.encoded)
        mixed = linear_flops([square, (2 * self.width, self.width)], load.source_tokens, kind, rank, reached.fused)
        return vectors + query + mixed + _attention(self.width, load.vector_pairs, reached.fused, trained)

    @property
    def _projections(self) -> list[Map]:
        """Queries, keys and values."""
        return [(self.width, self.inner)] * 3

    @property
    def _output(self) -> Map:
        return self.inner, self.width

    @property
    def _feed_forward(self) -> list[Map]:
        return [*[(self.width, self.ffn)] * self.gates, (self.ffn, self.width)]

    def activation_bytes(
        self, load: Workload, train: TrainedParts, lora: Lora, precision: Precision, checkpointed: int
    ) -> int:
        source, reached = load.source_tokens, Reached.by(train)
        encoder = source * self.token_bytes(train, lora, precision) + self.score_bytes(load.source_pairs, precision)
        decoder = (load.tokens - source) * self.token_bytes(train, lora, precision, cross=True)
        decoder += source * self.cross_bytes(train, precision)
        decoder += self.score_bytes(load.pairs + load.cross_pairs, precision)
        fusion = self.fusion_bytes(load, precision) if reached.fused else 0
        logits = logit_bytes(self.vocabulary, precision, load.supervised)
        encoders, decoders = self._checkpointed(checkpointed)
        state = self.width * precision.state_bytes
        inputs = state * (encoders * source + decoders * (load.tokens - source))
        kept = max((self.encoder_layers if reached.encoded else 1) - encoders, 0) * encoder
        kept += max((self.decoder_layers if reached.fused else 1) - decoders, 0) * decoder
        recomputed = max(encoder if encoders else 0, decoder if decoders else 0)
        return round(inputs + max(kept, recomputed) + fusion + logits)

    def token_bytes(self, train: TrainedParts, lora: Lora, precision: Precision, cross: bool = False) -> int:
        """Activations of one layer and token, without scores. `cross`: in the decoder, without keys and values of the
        source."""
        width, attentions = precision.bytes, 2 if cross else 1
        copies = 1 + attentions if not precision.bf16 else 3 + self.gates + 2 * (attentions - 1)
        inputs = 0 if train.language_model == "frozen" else width * copies * self.width
        maps = (3 if not cross else 4) + attentions + self.gates + 1
        adapters = maps * lora.rank * width if train.language_model == "lora" else 0
        norms = 8 * self.width * (1 + attentions)
        heads = width * self.inner * (4 + 2 * (attentions - 1))
        forward = width * self.ffn * (5 if self.gates == 2 else 2)
        return norms + inputs + adapters + heads + forward + self.width * (1 + attentions) + self.ffn

    def cross_bytes(self, train: TrainedParts, precision: Precision) -> int:
        """Activations of one decoder layer and source token: keys, values and, in mixed precision, copies of input."""
        copies = 2 if precision.bf16 and train.language_model != "frozen" else 0
        return precision.bytes * (2 * self.inner + copies * self.width)

    def score_bytes(self, pairs: int, precision: Precision) -> int:
        """Activations of one layer: the bias of each score, and a mask of dropout."""
        return pairs * self.heads * (4 + (2 if precision.bf16 else 0) + 1)

    def fusion_bytes(self, load: Workload, precision: Precision) -> int:
        """Inputs of the maps, queries, keys, values, both sides of the gate and the gate."""
        width, source = precision.bytes, load.source_tokens * self.width
        return source * (6 * width + 3 * 4) + load.vectors * width * (self.size + 3 * self.width)


def _attention(width: int, pairs: int, queries: bool, others: bool) -> Flops:
    """`queries`, `others`: whether queries, and keys and values, need a gradient. Four products: scores, weighted
    values; backward those of the weights, of queries, of keys and of values."""
    product = 2 * width * pairs
    return Flops(2 * product, product * ((queries or others) + queries + 2 * others))
