"""Qwen-VL (2023) as it was published: its weight names, and in plain functions what the model computes with them.

Written from the published names and shapes alone, and sharing no code with the package, so that two readings of the
same checkpoint can be compared. `TINY` keeps every proportion that code depends on; `FULL` is the real one.
"""

import base64
import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional

FULL = {
    "architectures": ["QWenLMHeadModel"],
    "bf16": True,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "kv_channels": 128,
    "layer_norm_epsilon": 1e-06,
    "max_position_embeddings": 8192,
    "model_type": "qwen",
    "no_bias": True,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "rotary_emb_base": 10000,
    "rotary_pct": 1.0,
    "seq_length": 2048,
    "tie_word_embeddings": False,
    "use_dynamic_ntk": True,
    "use_logn_attn": True,
    "visual": {
        "heads": 16,
        "image_size": 448,
        "image_start_id": 151857,
        "layers": 48,
        "mlp_ratio": 4.9231,
        "output_dim": 4096,
        "patch_size": 14,
        "width": 1664,
    },
    "vocab_size": 151936,
}
FULL_BYTES = 19_313_870_336
"""`total_size` in the published weight index, two bytes a parameter."""

TINY = FULL | {
    "hidden_size": 256,
    "intermediate_size": 192,
    "kv_channels": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rotary_emb_base": 500,
    "vocab_size": 512,
    "visual": FULL["visual"] | {"heads": 2, "layers": 2, "width": 32, "output_dim": 256},
}
MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(3, 1, 1)
STD = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(3, 1, 1)
HEAD = "transformer.h"
EYE = "transformer.visual"


def shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """Every published name and its shape."""
    hidden, visual = config["hidden_size"], config["visual"]
    ffn, width, wide = config["intermediate_size"] // 2, visual["width"], int(visual["width"] * visual["mlp_ratio"])
    layer = {"ln_1.weight": (hidden,), "ln_2.weight": (hidden,), "attn.c_proj.weight": (hidden, hidden)}
    layer |= {"attn.c_attn.weight": (3 * hidden, hidden), "attn.c_attn.bias": (3 * hidden,)}
    layer |= {"mlp.w1.weight": (ffn, hidden), "mlp.w2.weight": (ffn, hidden), "mlp.c_proj.weight": (hidden, ffn)}
    block = {"attn.in_proj.weight": (3 * width, width), "attn.in_proj.bias": (3 * width,)}
    block |= {"attn.out_proj.weight": (width, width), "attn.out_proj.bias": (width,)}
    block |= {"mlp.c_fc.weight": (wide, width), "mlp.c_fc.bias": (wide,)}
    block |= {"mlp.c_proj.weight": (width, wide), "mlp.c_proj.bias": (width,)}
    block |= {f"{norm}.{kind}": (width,) for norm in ("ln_1", "ln_2") for kind in ("weight", "bias")}
    pool = {"query": (256, hidden), "pos_embed": (256, hidden), "kv_proj.weight": (hidden, width)}
    pool |= {"attn.in_proj_weight": (3 * hidden, hidden), "attn.in_proj_bias": (3 * hidden,)}
    pool |= {"attn.out_proj.weight": (hidden, hidden), "attn.out_proj.bias": (hidden,)}
    pool |= {f"{norm}.{kind}": (hidden,) for norm in ("ln_q", "ln_kv") for kind in ("weight", "bias")}
    eye = {"conv1.weight": (width, 3, visual["patch_size"], visual["patch_size"]), "proj": (hidden, hidden)}
    eye |= {"positional_embedding": (256, width), "ln_pre.weight": (width,), "ln_pre.bias": (width,)}
    eye |= {"ln_post.weight": (hidden,), "ln_post.bias": (hidden,)}
    eye |= {f"attn_pool.{name}": shape for name, shape in pool.items()}
    for number in range(visual["layers"]):
        eye |= {f"transformer.resblocks.{number}.{name}": shape for name, shape in block.items()}
    table = (config["vocab_size"], hidden)
    every = {"transformer.wte.weight": table, "transformer.ln_f.weight": (hidden,), "lm_head.weight": table}
    for number in range(config["num_hidden_layers"]):
        every |= {f"{HEAD}.{number}.{name}": shape for name, shape in layer.items()}
    return every | {f"{EYE}.{name}": shape for name, shape in eye.items()}


def random_weights(config: dict = TINY) -> dict[str, torch.Tensor]:
    """float32, large enough for attention to prefer something; not even the fixed positions are what they should be."""
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, shape in shapes(config).items():
        noise = torch.randn(shape, generator=generator)
        norm = ".ln_" in name and name.endswith("weight")
        tensors[name] = 1 + 0.2 * noise if norm else noise * (0.3 if len(shape) == 1 else shape[-1] ** -0.5)
    return tensors


def write(folder: Path, tensors: dict[str, torch.Tensor], config: dict = TINY, files: int = 3) -> Path:
    """A published folder, with the weights dealt out to so many files and a small vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    names = sorted(tensors)
    for number in range(files):
        dealt = {name: tensors[name] for name in names[number::files]}
        save_file(dealt, folder / f"model-{number + 1:05}-of-{files:05}.safetensors")
    write_vocabulary(folder / "qwen.tiktoken")
    return folder


MERGED = (
    b"th",
    b"the",
    b" the",
    b"in",
    b"ing",
    b" t",
    b"aa",
    b"  ",
    b"11",
    "東".encode(),
    "東京".encode()[:4],
    b"whole",
)
"""Beyond single bytes. No lower ranks lead to the last three: they are tokens only where a whole piece is one."""


def write_vocabulary(path: Path, merged: tuple[bytes, ...] = MERGED) -> Path:
    tokens = [*(bytes([(33 + number) % 256]) for number in range(256)), *merged]
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)))
    return path


def logits(
    weights: dict[str, torch.Tensor], config: dict, ids: list[int], at: int, screen: torch.Tensor, prompt: int = 0
):
    """(L, vocabulary) in inference for one text whose 256 ids from `at` on stand for a uint8 (3, 448, 448) screen. What
    follows the first `prompt` ids was generated; 0: nothing was."""
    config = config | {"ntk_alpha": ntk_alpha(config, prompt or len(ids))}
    hidden = weights["transformer.wte.weight"][torch.tensor(ids)].clone()
    hidden[at : at + 256] = _visual_tokens(weights, config, (screen / 255 - MEAN) / STD)
    for number in range(config["num_hidden_layers"]):
        layer = {name.removeprefix(f"{HEAD}.{number}."): tensor for name, tensor in weights.items()}
        hidden = hidden + _attend(layer, config, _rms(hidden, layer["ln_1.weight"]))
        normed = _rms(hidden, layer["ln_2.weight"])
        up, gate = normed @ layer["mlp.w1.weight"].T, normed @ layer["mlp.w2.weight"].T
        hidden = hidden + (up * gate * torch.sigmoid(gate)) @ layer["mlp.c_proj.weight"].T
    return _rms(hidden, weights["transformer.ln_f.weight"]) @ weights["lm_head.weight"].T


def ntk_alpha(config: dict, length: int) -> int:
    """The factor on the base for a forward pass over a text of `length` tokens without a cache."""
    if not config["use_dynamic_ntk"]:
        return 1
    return max(2 ** math.ceil(math.log(length / config["seq_length"], 2) + 1) - 1, 1)


def _attend(layer: dict[str, torch.Tensor], config: dict, x: torch.Tensor) -> torch.Tensor:
    length, wide = len(x), config["hidden_size"]
    packed = x @ layer["attn.c_attn.weight"].T + layer["attn.c_attn.bias"]
    query, key, value = packed[:, :wide], packed[:, wide : 2 * wide], packed[:, 2 * wide :]
    future = torch.ones(length, length).triu(1).bool()
    size, mixed = config["kv_channels"], []
    base = config["rotary_emb_base"] * config["ntk_alpha"] ** (size / (size - 2))
    trained = config["seq_length"]
    if config["use_logn_attn"]:
        query = query * torch.tensor([max(1.0, math.log(place, trained)) for place in range(1, length + 1)])[:, None]
    for begin in range(0, wide, size):
        part = slice(begin, begin + size)
        turned = [_rotate(each[:, part], base) for each in (query, key)]
        scores = (turned[0] @ turned[1].T / math.sqrt(size)).masked_fill(future, -math.inf)
        mixed.append(scores.softmax(-1) @ value[:, part])
    return torch.cat(mixed, -1) @ layer["attn.c_proj.weight"].T


def _rotate(x: torch.Tensor, base: float) -> torch.Tensor:
    """Each dimension of the first half turns with its fellow of the second half."""
    half = x.shape[1] // 2
    angle = torch.arange(len(x))[:, None] * base ** (-torch.arange(half) / half)
    first, second = x[:, :half], x[:, half:]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)


def _rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def _visual_tokens(weights: dict[str, torch.Tensor], config: dict, pixels: torch.Tensor) -> torch.Tensor:
    """Normalised (3, 448, 448) to (256, hidden)."""
    eye = {name.removeprefix(f"{EYE}."): tensor for name, tensor in weights.items() if name.startswith(EYE)}
    heads, patch = config["visual"]["heads"], config["visual"]["patch_size"]
    side = pixels.shape[1] // patch
    cut = pixels.view(3, side, patch, side, patch).permute(1, 3, 0, 2, 4).reshape(side * side, -1)
    x = cut @ eye["conv1.weight"].flatten(1).T + stretch(eye["positional_embedding"], side)
    x = _norm(x, eye, "ln_pre")
    for number in range(config["visual"]["layers"]):
        block = {name.removeprefix(f"transformer.resblocks.{number}."): tensor for name, tensor in eye.items()}
        x = x + _look_around(_norm(x, block, "ln_1"), block, heads)
        wide = functional.gelu(_linear(_norm(x, block, "ln_2"), block, "mlp.c_fc"))
        x = x + _linear(wide, block, "mlp.c_proj")
    pool = {name.removeprefix("attn_pool."): tensor for name, tensor in eye.items()}
    content = _norm(x @ pool["kv_proj.weight"].T, pool, "ln_kv")
    read, _ = functional.multi_head_attention_forward(
        _norm(pool["query"], pool, "ln_q") + pool["pos_embed"],
        content + stretch(pool["pos_embed"], side),
        content,
        config["hidden_size"],
        config["hidden_size"] // 128,
        pool["attn.in_proj_weight"],
        pool["attn.in_proj_bias"],
        None,
        None,
        False,
        0.0,
        pool["attn.out_proj.weight"],
        pool["attn.out_proj.bias"],
    )
    return _norm(read, eye, "ln_post") @ eye["proj"]


def _look_around(x: torch.Tensor, block: dict[str, torch.Tensor], heads: int) -> torch.Tensor:
    """Query, key and value of the first head, then those of the second …"""
    mixed = []
    for packed in _linear(x, block, "attn.in_proj").chunk(heads, -1):
        query, key, value = packed.chunk(3, -1)
        mixed.append((query @ key.T / math.sqrt(query.shape[1])).softmax(-1) @ value)
    return _linear(torch.cat(mixed, -1), block, "attn.out_proj")


def _linear(x: torch.Tensor, weights: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _norm(x: torch.Tensor, weights: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def stretch(table: torch.Tensor, side: int) -> torch.Tensor:
    """A square table (n * n, width) on side * side places: cubic convolution with a = -0.75, edges repeated."""
    old = math.isqrt(len(table))
    matrix = torch.zeros(side, old)
    for place in range(side):
        centre = (place + 0.5) * old / side - 0.5
        for tap in range(math.floor(centre) - 1, math.floor(centre) + 3):
            matrix[place, min(max(tap, 0), old - 1)] += _cubic(abs(centre - tap))
    return torch.einsum("ry,cx,yxw->rcw", matrix, matrix, table.view(old, old, -1)).flatten(0, 1)


def _cubic(distance: float, a: float = -0.75) -> float:
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
