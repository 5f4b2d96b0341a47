"""DeepSpeed: a step of ZeRO-2 on one process, compared with PyTorch's."""

import copy
import os
import socket
from importlib.metadata import version

from vlm_agent.cli.doctor.check import BrokenError, Check, require_package
from vlm_agent.files.installation import install_line

_LEARNING_RATE = 0.1
_TOLERANCE = 1e-5
_CONFIG = {
    "zero_optimization": {"stage": 2, "overlap_comm": False},
    "train_micro_batch_size_per_gpu": 1,
    "zero_allow_untested_optimizer": True,
}


def _deepspeed() -> str:
    require_package("deepspeed")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    ranks = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in ranks.items()}

    import torch
    from torch import nn

    from vlm_agent.models.weights.precision import model_device
    from vlm_agent.training.zero import start_deepspeed

    device = model_device()
    start_deepspeed()

    import deepspeed

    torch.manual_seed(0)
    layer, x = nn.Linear(8, 8).to(device), torch.randn(4, 8, device=device)
    expected = copy.deepcopy(layer)
    engine, *_ = deepspeed.initialize(
        model=layer, optimizer=torch.optim.SGD(layer.parameters(), _LEARNING_RATE), config=_CONFIG
    )
    engine.backward(engine(x).square().mean())
    engine.step()

    optimizer = torch.optim.SGD(expected.parameters(), _LEARNING_RATE)
    expected(x).square().mean().backward()
    optimizer.step()
    difference = (layer.weight - expected.weight).abs().max().item()
    if not difference <= _TOLERANCE:
        raise BrokenError(f"a step of ZeRO-2 differs from PyTorch's by {difference:.2g}")
    return f"DeepSpeed {version('deepspeed')}, {'gloo' if device.type == 'cpu' else 'nccl'}"


DEEPSPEED = Check(
    _deepspeed,
    "a step of ZeRO-2 on one process against PyTorch's",
    ("train with training.deepspeed",),
    install_line("deepspeed"),
)
