"""How many floating-point operations training takes: counted from shapes, exactly what is computed.

A multiplication and an addition are two operations; only matrix products and convolutions count, as everywhere.
A linear map of N weights takes 2 N a token forward; backward, 2 N where a gradient has to pass to what lies below, and
2 N for the gradient of its own weights where they train: so 2 N, 4 N or 6 N. LoRA's two matrices are maps of their own.
A query and a key take 4 x head width x heads forward and twice that backward. Attention is causal and within a
sentence: a packed row has the pairs of its sentences, not of the row. The head runs at supervised positions only, a
frozen vision tower forward only.

Model FLOPs and MFU follow PaLM (Chowdhery et al. 2022, appendix B): what a step needs whatever the implementation, so
without what gradient checkpointing computes again. With it, they are hardware FLOPs (HFU). Unlike the 6 N rule, which
would credit LoRA with gradients of frozen weights that nobody computes, this counts 4 N there. Left out, all small:
norms, softmax, embeddings, the optimiser, de-quantisation, DoRA's norms, the loss on elements, and the scores that
flash attention computes twice.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from peft import PeftModel
from torch.utils.flop_counter import FlopCounterMode

from vlm_agent.models.adapters import choose_trained_weights
from vlm_agent.models.llama_vit import LlamaViT, LlamaViTConfig
from vlm_agent.models.recipe import Lora, TrainedParts, Training
from vlm_agent.models.zero3 import made_whole
from vlm_agent.sentences import IGNORED
from vlm_agent.training.shapes import Decoder, ModelShape, QwenTower


@dataclass(frozen=True)
class Work:
    """Floating-point operations; whole numbers unless a mean. `recomputed`: forward again, because of gradient
    checkpointing."""

    forward: float = 0
    backward: float = 0
    recomputed: float = 0

    @property
    def model(self) -> float:
        return self.forward + self.backward

    @property
    def hardware(self) -> float:
        return self.model + self.recomputed

    def __add__(self, other: "Work") -> "Work":
        return Work(self.forward + other.forward, self.backward + other.backward, self.recomputed + other.recomputed)

    def __mul__(self, times: float) -> "Work":
        return Work(self.forward * times, self.backward * times, self.recomputed * times)


@dataclass(frozen=True)
class Load:
    """What is read: `tokens`, visual ones too; `pairs` of query and key; `supervised` tokens; how many screens of each
    size, in patches (rows, columns) for Qwen and in pixels (height, width) for Llama+ViT."""

    tokens: int
    pairs: int
    supervised: int
    screens: Mapping[tuple[int, int], int]


def causal_pairs(lengths: np.ndarray) -> int:
    """Pairs of a token and one that it attends to, itself among them, in sentences of these lengths."""
    lengths = np.asarray(lengths, np.int64)
    return int((lengths * (lengths + 1) // 2).sum())


def load_of(batch: Mapping[str, torch.Tensor]) -> Load:
    """Of a packed batch: `input_ids`, `labels` (1, L), `cu_seqlens` (n+1,), and `screens` or `grids`."""
    if "grids" in batch:
        screens = Counter((rows, columns) for _, rows, columns in batch["grids"].tolist())
    else:
        screens = Counter({tuple(batch["screens"].shape[-2:]): len(batch["screens"])})
    return Load(
        tokens=batch["input_ids"].numel(),
        pairs=causal_pairs(batch["cu_seqlens"].diff().cpu().numpy()),
        supervised=int((batch["labels"] != IGNORED).sum()),
        screens=screens,
    )


@dataclass(frozen=True)
class StepFlops:
    """Counts for one model, trained one way. `rank` is LoRA's."""

    shape: ModelShape
    train: TrainedParts
    rank: int
    checkpointing: bool

    def of(self, load: Load) -> Work:
        reached = "full" in (self.train.projector, self.train.embeddings) or self.train.vision != "frozen"
        reached = reached or "lora" in (self.train.projector, self.train.embeddings)
        language = decoder_work(self.shape.decoder, self.train, self.rank, load, reached, self.checkpointing)
        return sum((self.screen(size) * count for size, count in load.screens.items()), language)

    def screen(self, size: tuple[int, int]) -> Work:
        """Of one screen of this size, from pixels or patches to projected tokens."""
        tower, checkpointing = self.shape.tower, self.checkpointing
        if isinstance(tower, QwenTower):
            return tower_work(tower, self.train, self.rank, size, checkpointing)
        return screen_work(tower.to_json_string(), self.train, self.rank, checkpointing)


def linear_work(maps: Iterable[tuple[int, int]], rows: int, training: Training, rank: int, reached: bool) -> Work:
    """Of linear maps (inputs, outputs), each on `rows` vectors. `reached`: what lies below them needs a gradient."""
    forward = backward = 0
    for inputs, outputs in maps:
        plain = 2 * inputs * outputs * rows
        forward += plain
        backward += plain * (reached + (training == "full"))
        if training == "lora":
            down, up = 2 * inputs * rank * rows, 2 * rank * outputs * rows
            forward += down + up
            backward += down * (1 + reached) + 2 * up
    return Work(forward, backward)


def decoder_work(
    decoder: Decoder, train: TrainedParts, rank: int, load: Load, reached: bool, checkpointing: bool
) -> Work:
    """Of the language model, head included. `reached`: its input needs a gradient."""
    kind, rows = train.language_model, load.tokens
    trained = kind != "frozen"
    inner = reached or trained
    # A full layer trains the norm below its first maps, so those pass a gradient on even in the lowest layer.
    lowest = linear_work(decoder.read_first, rows, kind, rank, reached or kind == "full")
    others = linear_work(decoder.read_first, rows, kind, rank, inner) * (decoder.layers - 1)
    later = linear_work(decoder.read_later, rows, kind, rank, inner) * decoder.layers
    attention = attention_work(decoder.query_width, load.pairs, inner) * decoder.layers
    layers = lowest + others + later + attention
    above = inner or train.norm != "frozen"
    head = linear_work([(decoder.hidden, decoder.vocabulary)], load.supervised, train.head, rank, above)
    again = Work(recomputed=layers.forward if checkpointing and inner else 0)
    return layers + head + again + _adapted_embeddings(decoder, train, rank, rows)


def attention_work(width: int, pairs: int, passes: bool) -> Work:
    """Of heads `width` wide together, over `pairs` of query and key."""
    forward = 4 * width * pairs
    return Work(forward, 2 * forward if passes else 0)


def _adapted_embeddings(decoder: Decoder, train: TrainedParts, rank: int, rows: int) -> Work:
    """LoRA on a table: its first matrix is looked up, its second multiplies."""
    product = 2 * rank * decoder.hidden * rows if train.embeddings == "lora" else 0
    return Work(product, 2 * product)


def tower_work(tower: QwenTower, train: TrainedParts, rank: int, size: tuple[int, int], checkpointing: bool) -> Work:
    """Of one screen of `size` patches (rows, columns) through a Qwen-VL tower and its mergers."""
    patches, tokens = size[0] * size[1], tower.tokens(*size)
    kind, trained = train.vision, train.vision != "frozen"
    stem = linear_work([(tower.patch_values, tower.width)], patches, "full" if kind == "full" else "frozen", 0, False)
    read_first, *read_later = tower.layer_maps
    layers = linear_work([read_first], patches, kind, rank, kind == "full")
    layers += linear_work([read_first], patches, kind, rank, trained) * (tower.layers - 1)
    layers += linear_work(read_later, patches, kind, rank, trained) * tower.layers
    layers += attention_work(tower.width, tower.pairs(*size), trained)
    deepstack = linear_work(tower.merger_maps, tokens, kind, rank, trained) * tower.deepstack
    first, second = tower.merger_maps
    merger = linear_work([first], tokens, train.projector, rank, trained or train.projector == "full")
    merger += linear_work([second], tokens, train.projector, rank, trained or train.projector != "frozen")
    again = Work(recomputed=layers.forward if checkpointing and trained else 0)
    return stem + layers + deepstack + merger + again


@lru_cache(maxsize=16)
def screen_work(config: str, train: TrainedParts, rank: int, checkpointing: bool) -> Work:
    """Of one screen through the encoder and projector of a `LlamaViTConfig`, as JSON: any encoder, so it is run once
    on the meta device, where nothing is computed, and its products are counted."""
    model = screen_reader(config, train, rank)
    with FlopCounterMode(display=False) as counter:
        seen, _ = model.see(torch.empty(1, 3, *model.config.screen_size, device="meta"))
        forward = counter.get_total_flops()
        if seen.requires_grad:
            seen.sum().backward()
        backward = counter.get_total_flops() - forward
    return Work(forward, backward, forward if checkpointing and train.vision != "frozen" else 0)


def screen_reader(config: str, train: TrainedParts, rank: int) -> LlamaViT:
    """On the meta device, the model of a `LlamaViTConfig`, as JSON, with the parts that see adapted, and with one layer
    of the language model, which is not run."""
    config = LlamaViTConfig.from_dict(json.loads(config))
    config.text_config.num_hidden_layers = 1
    frozen = dict.fromkeys(("embeddings", "language_model", "norm", "head"), "frozen")
    with torch.device("meta"), made_whole(True):
        model = LlamaViT(config)
        # Fused attention has a kernel for each device, of which the counter knows some; plain products it knows all.
        if model.vision._supports_sdpa and model.vision._can_set_attn_implementation():
            model.vision.set_attn_implementation("eager")
        model = choose_trained_weights(model, train.model_copy(update=frozen), Lora(rank=max(rank, 1)))
    model = model.get_base_model() if isinstance(model, PeftModel) else model
    model._normalise = lambda screens: screens  # no product, and it asks for an autocast that this device has not
    return model
