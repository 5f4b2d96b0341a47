"""Three steps of Muon on matrices of four shapes, on as many ranks as there are."""

import hashlib
from unittest import mock

import torch

from vlm_agent.training.loop import optimizers as muon


def moved() -> tuple[str, int]:
    """sha256 of the weights afterwards, and how many matrices this rank has orthogonalised."""
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(*shape)) for shape in ((8, 24), (16, 16), (4, 9), (9, 4))]
    optimizer = muon.Muon(weights, 0.02, 0.1)
    with mock.patch.object(muon, "orthogonal", wraps=muon.orthogonal) as orthogonal:
        for _ in range(3):
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            optimizer.step()
    content = b"".join(weight.detach().numpy().tobytes() for weight in weights)
    return hashlib.sha256(content).hexdigest(), orthogonal.call_count
