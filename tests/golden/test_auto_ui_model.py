"""The logits and losses of the published Auto-UI, head apart and head tied, on tiny random weights."""

import sys
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

COPIES = Path(__file__).parents[1] / "data/auto_ui"
sys.path.append(str(Path(__file__).parent))

from auto_ui import main  # noqa: E402


def test_logits_and_losses_of_the_copies_agree(capsys):
    assert main([str(COPIES / "model_flan.safetensors"), str(COPIES / "model_t5.safetensors")]) == 0
    assert capsys.readouterr().out.count("4 compared, 0 different") == 2


def changed(name: str, tmp_path: Path) -> Path:
    """A copy whose tensor `name` is a thousandth larger."""
    with safe_open(COPIES / "model_flan.safetensors", framework="pt") as file:
        tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    tensors[name] = tensors[name] * 1.001
    path = tmp_path / "changed.safetensors"
    save_file(tensors, path, metadata)
    return path


@pytest.mark.parametrize(
    "name", ["weights.mha_layer.in_proj_weight", "weights.gate_dense.weight", "outputs.loss.pooled"]
)
def test_a_difference_is_printed_and_fails(name, tmp_path, capsys):
    assert main([str(changed(name, tmp_path))]) == 1
    printed = capsys.readouterr().out
    assert "pooled" in printed
    assert "is accepted" in printed
