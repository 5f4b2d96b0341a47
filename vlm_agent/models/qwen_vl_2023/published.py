"""The weights of the published checkpoint: their names and shapes, and their names and layout here."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from vlm_agent.models.qwen_vl_2023.configuration import GRID, Published, tower_ffn

Shape = tuple[int, ...]
_QUERIES = GRID[0] * GRID[1]


@dataclass(frozen=True)
class Weight:
    """A published weight: its shape, its names here, and its conversion to one tensor per name."""

    name: str
    shape: Shape
    targets: tuple[str, ...]
    convert: Callable[[torch.Tensor], tuple[torch.Tensor, ...]] = lambda tensor: (tensor,)


def _thirds(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(third.clone() for third in tensor.chunk(3))  # safetensors refuses tensors that share memory


def _transposed(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (tensor.t().contiguous(),)


def published_weights(published: Published) -> dict[str, Weight]:
    """All of them, by name."""
    listed = [*_language_model(published), *_tower(published), *_resampler(published)]
    return {weight.name: weight for weight in listed}


def _language_model(published: Published) -> Iterator[Weight]:
    hidden = published.hidden_size
    table = (published.vocab_size, hidden)
    yield Weight("transformer.wte.weight", table, ("language_model.model.embed_tokens.weight",))
    yield Weight("transformer.ln_f.weight", (hidden,), ("language_model.model.norm.weight",))
    yield Weight("lm_head.weight", table, ("language_model.lm_head.weight",))
    for layer in range(published.num_hidden_layers):
        yield from _decoder_layer(
            f"transformer.h.{layer}.",
            f"language_model.model.layers.{layer}.",
            hidden,
            published.intermediate_size // 2,
        )


def _decoder_layer(there: str, here: str, hidden: int, ffn: int) -> Iterator[Weight]:
    yield Weight(f"{there}ln_1.weight", (hidden,), (f"{here}input_layernorm.weight",))
    yield Weight(f"{there}ln_2.weight", (hidden,), (f"{here}post_attention_layernorm.weight",))
    for kind, shape in (("weight", (3 * hidden, hidden)), ("bias", (3 * hidden,))):
        targets = tuple(f"{here}self_attn.{part}_proj.{kind}" for part in "qkv")
        yield Weight(f"{there}attn.c_attn.{kind}", shape, targets, _thirds)
    yield Weight(f"{there}attn.c_proj.weight", (hidden, hidden), (f"{here}self_attn.o_proj.weight",))
    # The activation is on w2, so w2 is the gate: w1(x) * silu(w2(x)).
    yield Weight(f"{there}mlp.w1.weight", (ffn, hidden), (f"{here}mlp.up_proj.weight",))
    yield Weight(f"{there}mlp.w2.weight", (ffn, hidden), (f"{here}mlp.gate_proj.weight",))
    yield Weight(f"{there}mlp.c_proj.weight", (hidden, ffn), (f"{here}mlp.down_proj.weight",))


def _tower(published: Published) -> Iterator[Weight]:
    visual = published.visual
    there, here, width, patch = "transformer.visual.", "vision.", visual.width, visual.patch_size
    yield Weight(f"{there}conv1.weight", (width, 3, patch, patch), (f"{here}conv1.weight",))
    yield Weight(f"{there}positional_embedding", (_QUERIES, width), (f"{here}positional_embedding",))
    for kind in ("weight", "bias"):
        yield Weight(f"{there}ln_pre.{kind}", (width,), (f"{here}ln_pre.{kind}",))
    for layer in range(visual.layers):
        for name, shape in _tower_block(width, tower_ffn(visual)).items():
            target = f"{here}blocks.{layer}.{name.removeprefix('mlp.')}"
            yield Weight(f"{there}transformer.resblocks.{layer}.{name}", shape, (target,))


def _tower_block(width: int, ffn: int) -> dict[str, Shape]:
    linear = {
        "attn.in_proj": (3 * width, width),
        "attn.out_proj": (width, width),
        "mlp.c_fc": (ffn, width),
        "mlp.c_proj": (width, ffn),
    }
    shapes: dict[str, Shape] = {f"{norm}.{kind}": (width,) for norm in ("ln_1", "ln_2") for kind in ("weight", "bias")}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def _resampler(published: Published) -> Iterator[Weight]:
    hidden = published.hidden_size
    there, here = "transformer.visual.attn_pool.", "projector."
    yield Weight(f"{there}query", (_QUERIES, hidden), (f"{here}query",))
    yield Weight(f"{there}pos_embed", (_QUERIES, hidden), (f"{here}positions",))
    yield Weight(f"{there}kv_proj.weight", (hidden, published.visual.width), (f"{here}kv_proj.weight",))
    for kind, shape in (("weight", (hidden, hidden)), ("bias", (hidden,))):
        targets = tuple(f"{here}{part}_proj.{kind}" for part in "qkv")
        yield Weight(f"{there}attn.in_proj_{kind}", (3 * hidden, *shape[1:]), targets, _thirds)
        yield Weight(f"{there}attn.out_proj.{kind}", shape, (f"{here}out_proj.{kind}",))
        for norm in ("ln_q", "ln_kv"):
            yield Weight(f"{there}{norm}.{kind}", (hidden,), (f"{here}{norm}.{kind}",))
        yield Weight(f"transformer.visual.ln_post.{kind}", (hidden,), (f"{here}ln_post.{kind}",))
    # Published as a matrix multiplied from the right; a linear layer multiplies by the transpose.
    yield Weight("transformer.visual.proj", (hidden, hidden), (f"{here}proj.weight",), _transposed)
