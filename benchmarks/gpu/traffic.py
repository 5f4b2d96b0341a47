"""Bytes that a training step moves between matrix products, per token and decoder layer, and the MFU that they allow.

Runs one layer of the shape, forward and backward, in mixed precision with LoRA without dropout, and adds up inputs and
outputs of every operation but matrix products, attention and views. `ceiling` is the MFU if these operations run at the
GPU's copy bandwidth and products at a share of its peak, one after the other; gradient checkpointing, attention, the
vision tower and everything outside the layers are left out. It is computed, not measured.
A CPU counts as well as a GPU: what a GPU runs as one kernel (norms, SwiGLU and rotary embedding of models/fused.py)
counts as one that reads its inputs and writes its results, and backward reads gradients and inputs again.
"""

import argparse
import sys
from collections import Counter
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear as LoraLinear
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.gpu.without_values import replaced
from benchmarks.training.models import LORA_ALPHA, LORA_RANK, default_dtype
from benchmarks.training.shapes import Shape, shape_named
from vlm_agent.models import fused
from vlm_agent.models.fused import fuse
from vlm_agent.models.weights.lora_layers import fuse_lora

PRODUCTS = {"mm", "addmm", "addmm_", "bmm"}
DECODERS = {"llama_vit": "llama", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3"}
"""Language models of one modality with the same layers, but for the rotation's three axes."""
LAYERS = "transformers.models.{decoder}.modeling_{decoder}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", required=True, help="name of a shape in training/shapes.py")
    parser.add_argument("--tokens", type=int, default=256, metavar="N")
    parser.add_argument("--copy", type=float, default=3.0, metavar="TB/S", help="copy bandwidth (default 3.0, H100)")
    parser.add_argument("--peak", type=float, default=989.4, metavar="TFLOP/S", help="(default 989.4, H100)")
    parser.add_argument("--products", type=float, default=0.75, metavar="SHARE", help="of peak, that products reach")


class Traffic(TorchDispatchMode):
    """Sums bytes by operation, and FLOPs of matrix products."""

    def __init__(self):
        super().__init__()
        self.bytes, self.calls, self.flops, self.within = Counter(), Counter(), 0, False

    @contextmanager
    def one_kernel(self, name: str, *inputs: torch.Tensor):
        """Counts what runs inside as one kernel that reads `inputs`, and writes what the yielded list holds at the
        end."""
        written: list[torch.Tensor] = []
        self.within = True
        yield written
        self.within = False
        self.bytes[name] += sum(map(_size, (*inputs, *written)))
        self.calls[name] += 1

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        name = operator._schema.name.partition("::")[2]
        read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        written = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if self.within:
            return result
        if name in PRODUCTS:
            self.flops += 2 * read[-1].shape[-1] * read[-2].numel()
        elif "attention" not in name and not name.startswith("empty") and not _is_view(operator, read, written):
            self.bytes[name] += sum(map(_size, read)) + sum(map(_size, written))
            self.calls[name] += 1
        return result


class OneKernel(torch.autograd.Function):
    """A function of tensors, forward and backward, as one kernel each."""

    @staticmethod
    def forward(context, traffic, name, function, *inputs):
        context.traffic, context.name, context.function = traffic, name, function
        context.save_for_backward(*inputs)
        with traffic.one_kernel(name, *inputs) as written:
            result = function(*inputs)
            written += tree_leaves(result)
        return result

    @staticmethod
    def backward(context, *gradients):
        copies = [
            one.detach().requires_grad_(needed)
            for one, needed in zip(context.saved_tensors, context.needs_input_grad[3:], strict=True)
        ]
        with context.traffic.one_kernel(f"{context.name}_backward", *gradients, *copies) as written:
            with torch.enable_grad():
                results = tree_leaves(context.function(*copies))
            written += torch.autograd.grad(results, [one for one in copies if one.requires_grad], gradients)
        found = iter(written)
        return None, None, None, *(next(found) if one.requires_grad else None for one in copies)


@contextmanager
def like_a_gpu(traffic: Traffic, decoder: str):
    """What a GPU runs as one kernel counts as one."""
    norm, gated = fused._RMSNorm.apply, fused._gated.function
    home = sys.modules[LAYERS.format(decoder=decoder)]
    rotary = home.apply_rotary_pos_emb.function

    def normalise(x, weight, epsilon):
        return OneKernel.apply(traffic, "rms_norm", lambda x, weight: norm(x, weight, epsilon), x, weight)

    def gate(*inputs):
        return OneKernel.apply(traffic, "swiglu", gated, *inputs)

    def rotate(*inputs):
        return OneKernel.apply(traffic, "rotary", rotary, *inputs)

    kernels = {"_RMSNorm": SimpleNamespace(apply=normalise), "_SwiGLU": SimpleNamespace(apply=gate)}
    with replaced(fused, **kernels), replaced(home, apply_rotary_pos_emb=rotate):
        yield


def _is_view(operator, read: list[torch.Tensor], written: list[torch.Tensor]) -> bool:
    held = {tensor.untyped_storage().data_ptr() for tensor in read}
    return not operator._schema.is_mutable and any(one.untyped_storage().data_ptr() in held for one in written)


def _size(tensor: torch.Tensor) -> int:
    """Bytes that lie in memory: an expanded tensor is read from its cache."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def measure(options: argparse.Namespace) -> dict:
    shape = shape_named(options.shape)
    return {
        "fused": count(shape, options, ours=True),
        "as transformers and peft run it": count(shape, options, ours=False),
    }


def count(shape: Shape, options: argparse.Namespace, ours: bool) -> dict:
    model = one_layer(shape)
    if ours:
        fuse(model)
        fuse_lora(model)
    width = shape.text["hidden_size"]
    embeddings = torch.randn(1, options.tokens, width, dtype=torch.bfloat16).requires_grad_()
    with Traffic() as traffic, like_a_gpu(traffic, DECODERS[shape.family]) if ours else nullcontext():
        with torch.autocast("cpu", torch.bfloat16):
            hidden = model.get_base_model().model(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        hidden.backward(torch.ones_like(hidden))
    moved, flops = sum(traffic.bytes.values()) / options.tokens, traffic.flops / options.tokens
    ideal = flops / (options.peak * 1e12)
    seconds = ideal / options.products + moved / (options.copy * 1e12)
    return {
        "kilobytes_per_token": moved / 1e3,
        "megaflops_per_token": flops / 1e6,
        "calls": sum(traffic.calls.values()),
        "ceiling": ideal / seconds,
        "kilobytes_by_operation": {
            name: round(size / options.tokens / 1e3) for name, size in traffic.bytes.most_common(8)
        },
    }


def one_layer(shape: Shape):
    """One decoder layer and the last norm, frozen in bfloat16, with an adapter of float32."""
    torch.manual_seed(0)
    text = shape.text | {"num_hidden_layers": 1, "vocab_size": 64}
    text.pop("rope_parameters", None)
    with default_dtype(torch.bfloat16):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(DECODERS[shape.family], **text))
    model.requires_grad_(False)
    model = get_peft_model(model, LoraConfig(r=LORA_RANK, lora_alpha=LORA_ALPHA, target_modules=r".*_proj"))
    for layer in model.modules():
        if isinstance(layer, LoraLinear):
            layer.lora_A.float()
            layer.lora_B.float()
    return model.train()
