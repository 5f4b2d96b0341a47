"""Single operations of a vision tower, before and after the replacements of vlm_agent/models/vision_kernels.py, at the
sizes of Qwen2.5-VL-7B and of AITW's screens: 78 x 38 patches each. `mlp` is the gated MLP of a layer at its own width
and padded. `ours` of an attention is what the package chooses, `loop` and `varlen` are the two ways.

`ceilings`: a large matrix product and a copy, for comparison. `error`: relative difference of the two results, and of
each from float64 where it says so. On a GPU `varlen` is torch's own variable-length flash attention.
"""

import argparse
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLMLP

from benchmarks.gpu.timing import milliseconds
from vlm_agent.models.attention import Bounds, within_segments
from vlm_agent.models.qwen_vl.vision_kernels import flatten_patch_embedding, pad_width

ROWS, COLUMNS, WINDOW = 78, 38, 8
WIDTH, HEADS, MLP_WIDTH = 1280, 16, 3420


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--screens", type=int, default=21, metavar="N", help="screens of a row (default 21)")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])


@torch.inference_mode()
def measure(options: argparse.Namespace) -> dict:
    torch.manual_seed(0)
    device, dtype = options.device, getattr(torch, options.dtype)
    patches = options.screens * ROWS * COLUMNS
    windows = [rows * columns for _ in range(options.screens) for rows in cut(ROWS) for columns in cut(COLUMNS)]
    whole = [ROWS * COLUMNS] * options.screens
    return {
        "patches": patches,
        "ceilings": ceilings(device, dtype),
        "patch_embedding": patch_embedding(patches, device, dtype),
        "mlp": mlp(patches, device, dtype),
        "window_attention": {"segments": len(windows)} | attention(windows, device, dtype),
        "screen_attention": {"segments": len(whole)} | attention(whole, device, dtype),
    }


def cut(length: int) -> list[int]:
    return [end - start for start, end in pairwise([*range(0, length, WINDOW), length])]


def ceilings(device: str, dtype: torch.dtype) -> dict:
    size, numbers = (8192, 2**30) if device == "cuda" else (1024, 2**24)
    a, b = torch.randn(2, size, size, device=device, dtype=dtype)
    product = milliseconds(lambda: a @ b, device)
    source = torch.randn(numbers, device=device, dtype=dtype)
    target = torch.empty_like(source)
    copy = milliseconds(lambda: target.copy_(source), device)
    return {
        "matrix_product_tflops": 2 * size**3 / product / 1e9,
        "copy_gb_per_second": 2 * numbers * source.element_size() / copy / 1e6,
    }


def patch_embedding(patches: int, device: str, dtype: torch.dtype) -> dict:
    kernel = (2, 14, 14)
    conv, product = (nn.Conv3d(3, WIDTH, kernel, stride=kernel, bias=False).to(device, dtype) for _ in range(2))
    product.load_state_dict(conv.state_dict())
    flatten_patch_embedding(product)
    pixels = torch.randn(patches, 3, *kernel, device=device, dtype=dtype)
    some = slice(0, 512)
    exact = pixels[some].flatten(1).double() @ conv.weight.flatten(1).double().T
    return {
        "convolution_ms": milliseconds(lambda: conv(pixels), device, repeats=3, warm_up=1),
        "product_ms": milliseconds(lambda: product(pixels), device),
        "convolution_error_from_float64": apart(conv(pixels)[some].flatten(1), exact),
        "product_error_from_float64": apart(product(pixels)[some].flatten(1), exact),
    }


def mlp(patches: int, device: str, dtype: torch.dtype) -> dict:
    config = Qwen2_5_VLVisionConfig(hidden_size=WIDTH, intermediate_size=MLP_WIDTH)
    plain, padded = (Qwen2_5_VLMLP(config, bias=True).to(device, dtype).requires_grad_(False) for _ in range(2))
    padded.load_state_dict(plain.state_dict())
    pad_width(padded)
    states = torch.randn(patches, WIDTH, device=device, dtype=dtype)
    return {
        "own_width_ms": milliseconds(lambda: plain(states), device, repeats=5, warm_up=1),
        "padded_ms": milliseconds(lambda: padded(states), device, repeats=5, warm_up=1),
        "padded_error_from_own_width": apart(padded(states), plain(states)),
    }


def attention(lengths: list[int], device: str, dtype: torch.dtype) -> dict:
    """Times of a layer's attention. `loop` is transformers' way, reads of the bounds included."""
    bounds = torch.tensor([0, *lengths], device=device, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    query, key, value = torch.randn(3, sum(lengths), HEADS, WIDTH // HEADS, device=device, dtype=dtype)
    one = [tensor.transpose(0, 1).unsqueeze(0) for tensor in (query, key, value)]
    layer, segments = nn.Module(), Bounds(tuple(bounds.tolist()), bounds)

    def loop() -> torch.Tensor:
        parts = [tensor.split(bounds.diff().tolist(), dim=2) for tensor in one]
        found = [functional.scaled_dot_product_attention(*part) for part in zip(*parts, strict=True)]
        return torch.cat([part.transpose(1, 2) for part in found], dim=1)

    def ours() -> torch.Tensor:
        return within_segments(layer, *one, None, segment_bounds=segments, is_causal=False)[0]

    ways: dict[str, Callable[[], torch.Tensor]] = {"loop": loop, "ours": ours}
    if device == "cuda" and dtype != torch.float32:
        from torch.nn.attention.varlen import varlen_attn

        longest = max(lengths)
        ways["varlen"] = lambda: varlen_attn(query, key, value, bounds, bounds, longest, longest)
    times = {f"{name}_ms": milliseconds(way, device, repeats=5, warm_up=1) for name, way in ways.items()}
    errors = {f"{name}_error_from_loop": apart(way().flatten(), loop().flatten()) for name, way in ways.items()}
    return times | errors


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())
