"""Runs a program without values: how much memory its tensors would take, and which operations it would run.

Floating-point tensors have a shape and a dtype only (PyTorch's fake tensors). Integers and booleans have values,
because shapes depend on them: which places are supervised, how large a screen is. What the program reads back of a
floating-point tensor is 1. Models of any size run in the memory of their integers.

Bytes are those that a caching allocator would hand out, in blocks of 512. What a kernel allocates inside itself, and
what the allocator loses to fragments, cannot be seen.
"""

import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from vlm_agent.models import attention

BLOCK = 512
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
"""Operators that take masks as indices."""


class WithoutValues(TorchDispatchMode):
    """`live`, `peak`: bytes of all storages of fake tensors, now and at most since `restart`. `calls`: by operator."""

    def __init__(self):
        super().__init__()
        self._fake = FakeTensorMode()
        self._known: set[int] = set()
        self.live = self.peak = 0
        self.calls: Counter[str] = Counter()

    def restart(self) -> None:
        self.peak = self.live
        self.calls.clear()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = operator._schema.name.partition("::")[2]
        self.calls[name] += 1
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        fake = any(isinstance(tensor, FakeTensor) for tensor in tensors)
        if fake and name == "_local_scalar_dense":
            return 1.0 if args[0].is_floating_point() else 1
        if fake or not tensors:
            result = self._without_values(operator, name, args, kwargs)
            if fake or any(
                isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf in pytree.tree_leaves(result)
            ):
                pytree.tree_map_only(torch.Tensor, self._track, result)
                return result
        result = operator(*args, **kwargs)
        return pytree.tree_map_only(torch.Tensor, self._if_floats, result)

    def _without_values(self, operator, name: str, args, kwargs):
        if name in INDEXING:
            args = _with_places(args)
        with self._fake:
            args, kwargs = pytree.tree_map_only(torch.Tensor, self._as_fake, (args, kwargs))
            return operator(*args, **kwargs)

    def _if_floats(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        fake = self._as_fake(tensor)
        self._track(fake)
        return fake

    def _as_fake(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if isinstance(tensor, FakeTensor) else self._fake.from_tensor(tensor)

    def _track(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        size = -(-storage.nbytes() // BLOCK) * BLOCK
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def _with_places(args):
    """Masks as the places where they are True: how many there are decides a shape."""
    places = [
        found
        for one in args[1]
        for found in (one.nonzero().unbind(1) if one is not None and one.dtype == torch.bool else [one])
    ]
    return args[0], places, *args[2:]


@contextmanager
def like_a_gpu() -> Iterator[None]:
    """Lets tensors of the CPU take the operators of a GPU where these keep other tensors for the backward pass."""
    with replaced(functional, dropout=_dropout), attention_by("varlen"):
        yield


ATTENTION = ("loop", "varlen")
"""One call per segment; per layer."""


@contextmanager
def attention_by(way: str) -> Iterator[None]:
    """Attention of packed rows and Qwen-VL vision towers on tensors of the CPU, by one of `ATTENTION`."""
    with replaced(attention, can_run_kernel=lambda query, dropout=0.0: way == "varlen" and not dropout):
        yield


@contextmanager
def replaced(module, **attributes) -> Iterator[None]:
    before = {name: getattr(module, name) for name in attributes}
    vars(module).update(attributes)
    try:
        yield
    finally:
        vars(module).update(before)


def _dropout(input, p=0.5, training=True, inplace=False):
    """CUDA's, whose mask has a byte per element; a CPU's has the dtype of the input."""
    return torch.native_dropout(input, p, True)[0] if training and p else input


def fill(model: torch.nn.Module) -> None:
    """Replaces, in place, weights and buffers of the meta device by fake ones of the CPU, within the mode."""
    filled: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = filled.setdefault(id(tensor), _like(tensor))


def _like(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty(tensor.shape, dtype=tensor.dtype)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty
