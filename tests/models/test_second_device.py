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

WAITS = 24
"""Of a step: those reads, masks whose count decides a shape (supervised places, Qwen3-VL's deepstack features), and the
checks of the loss and the gradients."""

NAMES = (*families.NAMES, families.QWEN_VL_2023)
every_family = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def there() -> dict:
    """What each family computes on a device that is not the CPU."""
    script = [sys.executable, "-W", "ignore", second_device.__file__, *NAMES]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@every_family
def test_a_training_step_computes_the_same_on_another_device(name, there):
    """Forward, backward, clipping, the checks of losses and gradients, the update, the log line, a validation."""
    assert there[name]["train"]["figures"] == pytest.approx(second_device.train(name, CPU)["figures"], rel=1e-5)


@every_family
def test_an_agent_answers_the_same_on_another_device(name, there):
    assert there[name]["answers"] == second_device.evaluate(name, CPU)


@every_family
def test_a_step_waits_for_the_device_a_few_times(name, there):
    waits = there[name]["train"]["waits"]
    assert 0 < waits["forward"] < waits["step"] <= WAITS


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
