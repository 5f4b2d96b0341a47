"""What a GPU has to keep of a forward pass until its backward pass: an estimate, from shapes.

After Korthikanti et al. 2022 ("Reducing Activation Recomputation in Large Transformer Models", section 4.1), who sum
what each operation of a GPT layer saves, 34 bytes a token and hidden unit and the attention's scores. Summed anew here
for a Llama-like layer as transformers, PEFT and autocast run it, with flash attention, which saves no scores. A layer
and token, with h hidden, q and k widths of queries and keys, i of the MLP, e bytes a number (2 in bfloat16, else 4):

    two norms     8 h          float32 copies of what they read; twice that where they train; 4 (q + k) with Qwen3's
    inputs        e (5h + q + i)  of the linear maps, which their own or their adapter's weight gradients need; in
                               bfloat16 each map has a cast copy of its own, in float32 those of one input share it:
                               e (2h + i); nothing where the layer is frozen
    dropout       5h + q + i   bytes of masks, where LoRA has dropout; in float32 the dropped copies, too
    attention     e (2q + 2k)  queries, keys, values, output; and 4 bytes a head
    MLP           3 e i        gate, its activation, up

With gradient checkpointing a layer keeps its input alone, and one layer at a time the rest.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch

from vlm_agent.models.llama_vit import LlamaViTConfig
from vlm_agent.models.recipe import Lora, TrainedParts
from vlm_agent.training.flops import Load, screen_reader
from vlm_agent.training.shapes import Decoder, ModelShape, QwenTower


@dataclass(frozen=True)
class Numbers:
    """How numbers are kept: `bf16`: computed in mixed precision; `frozen_bf16`: frozen weights are bfloat16, and so is
    what runs between the layers."""

    bf16: bool
    frozen_bf16: bool

    @property
    def bytes(self) -> int:
        return 2 if self.bf16 else 4


def activation_bytes(
    shape: ModelShape, train: TrainedParts, lora: Lora, numbers: Numbers, row: Load, checkpointing: bool
) -> int:
    """The most that one row of sentences needs at a time: an estimate.

    Behind a frozen tower, what the tower needs for a moment is gone before the language model begins.
    """
    vision = sum(
        _tower_bytes(shape, train, numbers, size, checkpointing) * count for size, count in row.screens.items()
    )
    language = decoder_bytes(shape.decoder, train, lora, numbers, row.tokens, checkpointing)
    language += logit_bytes(shape.decoder, numbers, row.supervised)
    return language + vision if train.vision != "frozen" else max(language, vision)


def decoder_bytes(
    decoder: Decoder, train: TrainedParts, lora: Lora, numbers: Numbers, tokens: int, checkpointing: bool
) -> int:
    """Of the language model's layers."""
    one = tokens * layer_bytes(decoder, train, lora, numbers)
    if {train.vision, train.projector, train.embeddings, train.language_model} == {"frozen"}:
        return one  # nothing below the head needs a gradient: layers come and go
    if not checkpointing:
        return decoder.layers * one
    return decoder.layers * tokens * decoder.hidden * (2 if numbers.frozen_bf16 else 4) + one


def layer_bytes(decoder: Decoder, train: TrainedParts, lora: Lora, numbers: Numbers) -> int:
    """Of one layer and token; the module's docstring has the formula."""
    hidden, query, key, wide = decoder.hidden, decoder.query_width, decoder.kv_width, decoder.intermediate
    width, kind = numbers.bytes, train.language_model
    every_input = 5 * hidden + query + wide
    norms = 8 * hidden * (2 if kind == "full" else 1) + (4 * (query + key) if decoder.qk_norm else 0)
    if kind == "frozen":
        inputs = 0
    elif kind == "lora" and lora.dropout:
        inputs = every_input * (width + 1)
    else:
        inputs = width * (every_input if numbers.bf16 else 2 * hidden + wide)
    adapters = 7 * lora.rank * width if kind == "lora" else 0
    attention = width * (2 * query + 2 * key) + 4 * decoder.heads
    return norms + inputs + adapters + attention + 3 * width * wide


def logit_bytes(decoder: Decoder, numbers: Numbers, supervised: int) -> int:
    """Logits at supervised positions: as computed, in float32, their log-softmax, the gradients of the first two."""
    return supervised * decoder.vocabulary * (2 + 4 + 4 + 4 + 2 if numbers.bf16 else 4 + 4 + 4)


def _tower_bytes(
    shape: ModelShape, train: TrainedParts, numbers: Numbers, size: tuple[int, int], checkpointing: bool
) -> int:
    """Of one screen. A frozen tower holds a few of its widest results at a time, a trained one keeps all."""
    tower, width = shape.tower, numbers.bytes
    if isinstance(tower, LlamaViTConfig):
        widest, together = screen_values(tower.to_json_string())
        return width * (4 * widest if train.vision == "frozen" else together)
    patches = size[0] * size[1]
    if train.vision == "frozen":
        return width * patches * (2 * tower.width + max(4 * tower.width, (2 + tower.gated) * tower.mlp))
    return patches * _trained_tower_layers(tower, width, checkpointing)


def _trained_tower_layers(tower: QwenTower, width: int, checkpointing: bool) -> int:
    one = 8 * tower.width + width * (7 * tower.width + (3 + tower.gated) * tower.mlp)
    return tower.layers * width * tower.width + one if checkpointing else tower.layers * one


@lru_cache(maxsize=16)
def screen_values(config: str) -> tuple[int, int]:
    """How many numbers the widest result of any layer holds, and all results together, while a `LlamaViTConfig`, as
    JSON, sees one screen."""
    sizes = []
    model = screen_reader(config, TrainedParts(), rank=0)
    for module in model.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda _, __, result: sizes.append(result.numel()))
    model.see(torch.empty(1, 3, *model.config.screen_size, device="meta"))
    return max(sizes), sum(sizes)
