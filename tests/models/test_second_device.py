"""Training and evaluation keep to one device: nothing mixes tensors of a GPU with tensors of the CPU."""

import json
import subprocess
import sys

import pytest
import torch
from helpers import families, second_device

CPU = torch.device("cpu")
READS = 10
"""Of a forward pass: bounds of sentences, sizes of screens, whether visual tokens fit. None is of a single layer."""

every_family = pytest.mark.parametrize("name", families.NAMES)


@pytest.fixture(scope="module")
def there() -> dict:
    """What each family computes on a device that is not the CPU."""
    script = [sys.executable, "-W", "ignore", second_device.__file__, *families.NAMES]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@every_family
def test_a_training_step_computes_the_same_on_another_device(name, there):
    expected = second_device.train(name, CPU) | {"reads": there[name]["train"]["reads"]}
    assert there[name]["train"] == pytest.approx(expected, rel=1e-5)


@every_family
def test_an_agent_answers_the_same_on_another_device(name, there):
    assert there[name]["answers"] == second_device.evaluate(name, CPU)


@every_family
def test_a_forward_pass_waits_for_the_device_a_few_times_whatever_its_layers(name, there):
    assert 0 < there[name]["train"]["reads"] <= READS


def test_tensors_of_two_devices_do_not_mix():
    script = (
        "import torch, second_device as s\nwith s.SecondDevice():\n    torch.ones(3).to(s.register()) + torch.ones(3)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=second_device.__file__.rpartition("/")[0], capture_output=True, text=True
    )
    assert "tensors on two devices" in done.stderr
