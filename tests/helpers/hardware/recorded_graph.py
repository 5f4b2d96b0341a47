"""A stand-in for `torch.cuda.CUDAGraph` on the CPU.

Records the operations of a capture; a replay runs them on the same tensors and writes into the same results. Like a
CUDA graph it knows neither Python nor new shapes, and refuses what reads a value while it captures.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select")


class RecordedGraph(TorchDispatchMode):
    graphs: list["RecordedGraph"] = []  # noqa: RUF012 (of the test)

    def __init__(self):
        super().__init__()
        self.operations, self.replays = [], 0
        self.graphs.append(self)

    def pool(self) -> tuple[int, int]:
        return 0, len(self.graphs)

    def capture_begin(self, pool, **_):
        self.__enter__()

    def capture_end(self):
        self.__exit__(None, None, None)

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        assert operator._schema.name not in READS, f"{operator} reads a value in a capture"
        result = operator(*args, **kwargs or {})
        self.operations.append((operator, args, kwargs or {}, result))
        return result

    def replay(self):
        self.replays += 1
        for operator, args, kwargs, before in self.operations:
            after = operator(*args, **kwargs)
            for old, new in zip(pytree.tree_leaves(before), pytree.tree_leaves(after), strict=True):
                if isinstance(old, torch.Tensor) and old is not new:
                    old.copy_(new)


def install(monkeypatch) -> list[RecordedGraph]:
    """Lets decoding capture on the CPU. The graphs, as they are captured."""
    stream = SimpleNamespace(wait_stream=lambda _: None, device=torch.device("cpu"))
    for name, stand_in in {
        "current_stream": lambda device: stream,
        "stream": lambda stream: nullcontext(),
        "synchronize": lambda device: None,
        "CUDAGraph": RecordedGraph,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr("vlm_agent.models.decoding.can_replay", lambda device: True)
    monkeypatch.setattr("vlm_agent.models.decoding._other_stream", lambda device: stream)
    monkeypatch.setattr("vlm_agent.models.decoding.Replayed._newest", None)
    monkeypatch.setattr("vlm_agent.models.decoding.Replayed._has_failed", False)
    monkeypatch.setattr(RecordedGraph, "graphs", [])
    return RecordedGraph.graphs
