"""RMSNorm, SwiGLU and rotary embedding with few kernels and few saved tensors; weights and their names stay.

transformers runs each as a chain of operations that reads and writes activations again and again. Here a norm saves
its input alone, and is one kernel of PyTorch on a GPU; SwiGLU saves its two inputs. On a GPU `torch.compile` fuses
SwiGLU and rotary embedding, for rows of any length (`dynamic=True`). On a CPU the operations are those of
transformers, because compiling costs more there than it gains: results are the same bits, gradients equal within
rounding.

Norms return what transformers' return: the dtype of their input, or of their weight where it is wider. Autocast does
not apply inside; it would widen inputs and results to float32.
"""

import functools
import logging
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.activations import ACT2FN

ROTARY = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_vision")
"""Functions of transformers' modules, which their attention layers find by name when they run."""

_LOG = logging.getLogger(__name__)


def fuse(model: nn.Module) -> None:
    """Replaces the norms, gated MLPs and rotary embeddings of a model, in place. A second call changes nothing.

    Rotary embeddings are functions of transformers' modules and change for the whole process, on a GPU alone.
    """
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            vars(module)["forward"] = MethodType(normalise, module)
        elif _is_gated_by_silu(module):
            vars(module)["forward"] = MethodType(gated_mlp, module)
    for home in {type(module).__module__ for module in model.modules()}:
        for name in ROTARY:
            rotary = getattr(sys.modules[home], name, None)
            if rotary is not None and not isinstance(rotary, OnGpu):
                setattr(sys.modules[home], name, OnGpu(rotary))


def _is_gated_by_silu(module: nn.Module) -> bool:
    children = dict(module.named_children())
    layers = {"gate_proj", "up_proj", "down_proj", "act_fn"}
    return children.keys() == layers and isinstance(children["act_fn"], type(ACT2FN["silu"]))


class OnGpu:
    """A function of tensors that is compiled for CUDA, and runs as it is (`function`) elsewhere, and with options."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._compiled: Callable[..., Any] | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *tensors: torch.Tensor, **options: Any) -> Any:
        return self.function(*tensors, **options) if options or not tensors[0].is_cuda else self.compiled(*tensors)

    def compiled(self, *tensors: torch.Tensor) -> Any:
        """The result of the compiled function. Where it cannot be compiled, the function runs as it is from then on,
        and a line of the log says so."""
        from torch._dynamo.exc import TorchDynamoException  # takes a second to import

        if self._compiled is None:
            self._compiled = torch.compile(self.function, dynamic=True)
        try:
            return self._compiled(*tensors)
        except TorchDynamoException as error:
            reason = str(error).strip().partition("\n")[0]
            _LOG.warning("%s runs without torch.compile, which is slower: %s", self.function.__name__, reason)
            self._compiled = self.function
            return self.function(*tensors)


def normalise(norm: Any, x: torch.Tensor) -> torch.Tensor:
    """The forward pass of an RMSNorm."""
    if x.is_cuda and x.dtype == norm.weight.dtype:
        with torch.autocast("cuda", enabled=False):
            return functional.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)
    return _RMSNorm.apply(x, norm.weight, norm.variance_epsilon)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        exact = x.float()
        scale = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + epsilon)
        context.save_for_backward(x, weight, scale)
        return weight * (exact * scale).to(x.dtype)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, scale = context.saved_tensors
        needs_input, needs_weight, _ = context.needs_input_grad
        normalised, gradient = x.float() * scale, gradients[0].float()
        of_weight = of_input = None
        if needs_weight:
            of_weight = (gradient * normalised).flatten(0, -2).sum(0).to(weight.dtype)
        if needs_input:
            scaled = gradient * weight
            mean = (scaled * normalised).mean(-1, keepdim=True)
            of_input = (scaled.sub_(normalised.mul_(mean)).mul_(scale)).to(x.dtype)
        return of_input, of_weight, None


def gated_mlp(mlp: Any, x: torch.Tensor) -> torch.Tensor:
    """The forward pass of an MLP with SwiGLU."""
    return mlp.down_proj(_SwiGLU.apply(mlp.gate_proj(x), mlp.up_proj(x)))


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(gate, up)
        return _gated(gate, up)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return _gate_gradients(gradients[0], *context.saved_tensors)


@OnGpu
def _gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(gate) * up


@OnGpu
def _gate_gradients(gradient: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ops.aten.silu_backward(gradient * up, gate), gradient * functional.silu(gate)
