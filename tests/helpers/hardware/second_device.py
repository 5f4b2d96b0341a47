"""A device beside the CPU, for machines without one: its tensors lie in main memory, and no operation mixes the two.

What fails on a GPU with "expected all tensors to be on the same device" fails here, too. What makes a program wait for
a GPU is counted: values and tensors read back, operations whose results have a size that only the device knows, and
copies to the device that are not asynchronous. Not visible here is what depends on CUDA itself: its kernels, their
precision and dtypes, what the package does for CUDA alone (variable-length attention), pinned memory, several GPUs.

Built on PyTorch's interface for backends written in Python; for a process of its own, because a backend cannot be
unregistered and `torch.tensor` is replaced.

    python tests/second_device.py FAMILY ...

trains and evaluates these families of tiny models there and prints, as JSON, what they computed.
"""

import json
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "second"
MOVES = {"to", "_to_copy", "copy_", "copy"}
UNKNOWN_SIZE = {
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_consecutive",
    "unique_dim",
    "repeat_interleave",
    "bincount",
    "equal",
}
"""Operations after which CUDA waits for the size of the result, or for a value."""
INDEXING = ("index", "_index_put", "_unsafe_index")  # these take indices from the CPU on every device


class OnSecondDevice(torch.Tensor):
    """A tensor of the second device, around one of the CPU."""

    @staticmethod
    def __new__(cls, held: torch.Tensor):
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        tensor = torch.Tensor._make_wrapper_subclass(cls, held.size(), **layout, device=torch.device(NAME, 0))
        tensor.held = held
        return tensor

    def tolist(self):
        SecondDevice.reads += 1
        SecondDevice.waits["tolist"] += 1
        return self.held.tolist()

    def __repr__(self, **_) -> str:
        SecondDevice.reads += 1
        return repr(self.held)

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        return _run(operator, args, kwargs or {})


class SecondDevice(TorchDispatchMode):
    """Within it, the device can be used. `reads`: how often values have been read back from it. `waits`: how often the
    program would have waited for a GPU, reads included, by operation."""

    reads = 0
    waits: ClassVar[Counter[str]] = Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return _run(operator, args, kwargs or {})


def _run(operator, args, kwargs):
    name = operator._schema.name.partition("::")[2]
    leaves = pytree.tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    there = [isinstance(tensor, OnSecondDevice) for tensor in tensors]
    if any(there) and name not in MOVES:
        _check(operator, name, tensors)
    device = next((leaf for leaf in leaves if isinstance(leaf, torch.device)), None)
    result_is_there = any(there) if device is None or name == "copy_" else device.type == NAME
    if name == "copy_":
        result_is_there = there[0]
    elif name == "_local_scalar_dense":
        result_is_there = False
        SecondDevice.reads += 1
    if any(there) and _waits(name, tensors, result_is_there):
        SecondDevice.waits[name] += 1
    if _waits_for_copy(name, there, result_is_there, args, kwargs):
        SecondDevice.waits["copy to the device"] += 1
    here, here_options = pytree.tree_map(_held, (args, kwargs))
    result = operator(*here, **here_options)
    if not result_is_there:
        return result
    result = pytree.tree_map(lambda leaf: OnSecondDevice(leaf) if isinstance(leaf, torch.Tensor) else leaf, result)
    if name == "copy_":
        return args[0]
    aliases = operator._schema.is_mutable or any(given.alias_info for given in operator._schema.returns)
    if any(there) and aliases and name not in MOVES:
        return return_and_correct_aliasing(operator, args, kwargs, result)
    return result


def _waits(name: str, tensors: list[torch.Tensor], result_is_there: bool) -> bool:
    indexed = name.startswith(INDEXING)
    masked = indexed and any(tensor.dtype == torch.bool for tensor in tensors[1:])
    copied = indexed and not all(isinstance(tensor, OnSecondDevice) for tensor in tensors)
    back = name in MOVES and not result_is_there
    return masked or copied or back or name in UNKNOWN_SIZE or name == "_local_scalar_dense"


def _waits_for_copy(name: str, there: list[bool], result_is_there: bool, args: tuple, options: dict) -> bool:
    is_asynchronous = options.get("non_blocking", name == "copy_" and args[2:] == (True,))
    return name in MOVES and result_is_there and not all(there) and not is_asynchronous


def _check(operator, name: str, tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        index = name.startswith(INDEXING) and tensor.dtype in (torch.int64, torch.bool)
        if not isinstance(tensor, OnSecondDevice) and tensor.dim() > 0 and not index:
            shapes = ", ".join(f"{one.device} {tuple(one.shape)}" for one in tensors)
            raise RuntimeError(f"{operator} of tensors on two devices: {shapes}")


def _held(leaf):
    if isinstance(leaf, OnSecondDevice):
        return leaf.held
    return torch.device("cpu") if isinstance(leaf, torch.device) else leaf


class _Backend(_DummyBackendModule):
    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def manual_seed_all(self, seed: int) -> None:
        pass

    def device_count(self) -> int:
        return 1

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


def register() -> torch.device:
    """The device. Also lets `torch.tensor` and `torch.as_tensor`, which no mode sees, make tensors for it."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
    make = torch.tensor

    def tensor(data, *, dtype=None, device=None):
        return make(data, dtype=dtype).to(device or "cpu")

    def as_tensor(data, dtype=None, device=None):
        if isinstance(data, torch.Tensor):
            return data.to(device or data.device, dtype or data.dtype)
        return tensor(data, dtype=dtype, device=device)

    torch.tensor, torch.as_tensor = tensor, as_tensor
    return torch.device(NAME, 0)


def episodes() -> list:
    from helpers import tiny

    return [
        tiny.episode(0, tiny.ACTIONS[:2]),
        tiny.episode(1, tiny.ACTIONS[2:3], size=(50, 40)),
        tiny.episode(2, tiny.ACTIONS[1:4], size=(40, 64)),
    ]


AUTO_UI = "auto_ui"


def model_and_batch(name: str) -> tuple[torch.nn.Module, dict]:
    from helpers import tiny
    from helpers.models import families, tiny_auto_ui

    from vlm_agent.models.auto_ui.family import collate

    if name == AUTO_UI:
        words = tiny.tokenizer()
        return tiny_auto_ui.model(len(words)), collate(tiny_auto_ui.sentences(words, screens=(1, 2)))
    family = families.adapted(name)
    return family.model, family.processor.collate([family.sentences.build(episode) for episode in episodes()])


def train(name: str, device: torch.device) -> dict:
    """A step of the training loop with activation checkpointing, its log line and a validation. `reads`: values read
    back by the forward pass; `waits`: of the forward pass, and of the step by operation."""
    from accelerate.utils import send_to_device

    from vlm_agent.models.cost import TrainingFlops
    from vlm_agent.models.family import family_of
    from vlm_agent.models.weights.adapters import without_adapter
    from vlm_agent.recipe.model import TrainedParts
    from vlm_agent.recipe.run import TrainingRecipe
    from vlm_agent.training.engine import Engine, Place
    from vlm_agent.training.loop.meter import Meter
    from vlm_agent.training.loop.validation import Validation
    from vlm_agent.training.train import Parts, run_steps

    model, batch = model_and_batch(name)
    model = model.to(device)
    model.activation_checkpointing_enable()
    base = without_adapter(model).config
    flops = TrainingFlops(family_of(base).cost(base), TrainedParts(), rank=4, checkpointed=2)
    figures, forward, waits = {}, [], {}
    # `forward` runs once more in the backward pass for layers, not for the model.
    model.register_forward_hook(lambda *_: forward.append((SecondDevice.reads, SecondDevice.waits.total())))
    journal = SimpleNamespace(log=lambda _, line: figures.update(line), close=lambda _: None)
    # The loop asks this between the update and the log line.
    preemption = SimpleNamespace(number=0, stops=lambda *_: waits.update(SecondDevice.waits))
    checkpoints = SimpleNamespace(is_old=False, lacks_validation=lambda _: False, is_due=lambda *_: False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine = Engine(model, torch.optim.AdamW(trained, foreach=False), Place(device, bf16=False))
    rows, meter = iter([send_to_device(batch, device)]), Meter(device, flops, None)
    parts = Parts(engine, rows, meter, Validation([batch], workers=0), checkpoints, journal, preemption)
    training = TrainingRecipe(steps=1, warmup_steps=0, schedule="constant", validation={"steps": 1})
    SecondDevice.reads = 0
    SecondDevice.waits.clear()
    run_steps(parts, training, 0, 1)
    compared = {key: value for key, value in figures.items() if "loss" in key or key.startswith(("grad", "eval"))}
    return {"figures": compared, "reads": forward[0][0], "waits": {"forward": forward[0][1], "step": waits}}


def evaluate(name: str, device: torch.device) -> dict:
    """`answers`: an agent's answers to every step, free and constrained, and one step by itself. `waits`: of the free
    batch, in the prefill, and by operation in the steps of decoding, whose number is `steps`."""
    from helpers.models import families

    from vlm_agent.agents import Turn
    from vlm_agent.agents.vlm.agent import VlmAgent

    family = families.family(name)
    agent = VlmAgent(family.model.to(device).eval(), family.words, family.sentences)
    constrained = replace(agent, constrained=True).answer_episodes(episodes())
    counted, free = counting_waits(agent)  # not of the first batch, which also waits for what a device keeps
    every = [answer.text for answers in (*free, *constrained) for answer in answers]
    first, second, *_ = episodes()[0].steps
    every.append(agent.act("open settings", [Turn(first.screen, None, first.action)], second.screen).text)
    return {"answers": every} | counted


def counting_waits(agent) -> tuple[dict, list]:
    """The `waits` and `steps` of `evaluate`, and the answers."""
    decoder, waits, steps = agent.decoder, {}, 0
    prefill, step = decoder.prefill, decoder.step

    def prefilled(sentences):
        SecondDevice.waits.clear()
        found = prefill(sentences)
        waits["prefill"] = dict(SecondDevice.waits)
        SecondDevice.waits.clear()
        return found

    def stepped(*inputs):
        nonlocal steps
        steps += 1
        return step(*inputs)

    decoder.prefill, decoder.step = prefilled, stepped
    answers = agent.answer_episodes(episodes())
    decoder.prefill, decoder.step = prefill, step
    return {"waits": waits | {"decoding": dict(SecondDevice.waits)}, "steps": steps}, answers


def check_itself(device: torch.device) -> dict:
    """`waits`: counted after each of several operations that make a GPU wait. `mixed`: the error of a sum of tensors on
    two devices."""
    some = torch.arange(4).to(device, non_blocking=True)
    some.index_select(0, torch.tensor([1]).to(device, non_blocking=True)) + 1
    counted = [SecondDevice.waits.total()]
    for wait in (
        lambda: some.tolist(),
        lambda: some.sum().item(),
        lambda: some.cpu(),
        lambda: some[some > 1],
        lambda: some[torch.tensor([1])],
        lambda: some.nonzero(),
        lambda: torch.repeat_interleave(some),
        lambda: torch.ones(3).to(device),
        lambda: torch.tensor(1.0, device=device),
    ):
        wait()
        counted.append(SecondDevice.waits.total())
    try:
        mixed = str(torch.ones(3).to(device) + torch.ones(3))
    except RuntimeError as error:
        mixed = str(error)
    return {"waits": counted, "mixed": mixed}


def main() -> None:
    import vlm_agent  # noqa: F401 (makes torchvision importable)

    sys.path.insert(0, str(Path(__file__).parents[2]))
    device = register()
    found = {}
    with SecondDevice():
        found["itself"] = check_itself(device)
        for name in sys.argv[1:]:
            found[name] = {"train": train(name, device)}
            if name != AUTO_UI:
                found[name]["evaluation"] = evaluate(name, device)
    print(json.dumps(found), flush=True)
    os._exit(0)  # autograd's thread for a device written in Python aborts an orderly exit


if __name__ == "__main__":
    main()
