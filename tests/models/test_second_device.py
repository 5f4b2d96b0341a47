"""Training and evaluation keep to one device: nothing mixes tensors of a GPU with tensors of the CPU."""

import json
import subprocess
import sys

import pytest
import torch
from helpers.hardware import second_device
from helpers.models import families

CPU = torch.device("cpu")
AGENTS = (*families.NAMES, families.QWEN_VL_2023)
NAMES = (*AGENTS, second_device.AUTO_UI)
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


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_answers_the_same_on_another_device(name, there):
    assert there[name]["evaluation"]["answers"] == second_device.evaluate(name, CPU)["answers"]


@pytest.mark.parametrize("name", families.NAMES)
def test_an_evaluation_waits_for_the_device_once_a_prefill_and_once_a_step(name, there):
    """To read the most likely tokens; bounds and places of screens come from the host."""
    found = there[name]["evaluation"]
    assert found["steps"] > 0
    assert found["waits"] == {"prefill": {"tolist": 1}, "decoding": {"tolist": found["steps"]}}


@every_family
def test_a_step_waits_for_the_device_once_to_check_that_losses_and_gradients_are_finite(name, there):
    """Forward, backward, meter, clipping, update. A copy to a GPU waits, too, unless it is asynchronous."""
    assert there[name]["train"]["waits"] == {"forward": 0, "step": {"tolist": 1}}


def test_the_device_counts_what_makes_a_gpu_wait():
    script = """
import torch, second_device as s
device, waits = s.register(), s.SecondDevice.waits
with s.SecondDevice():
    some = torch.arange(4).to(device, non_blocking=True)
    some.index_select(0, torch.tensor([1]).to(device, non_blocking=True)) + 1
    assert waits.total() == 0, waits
    for number, wait in enumerate((
        lambda: some.tolist(), lambda: some.sum().item(), lambda: some.cpu(), lambda: some[some > 1],
        lambda: some[torch.tensor([1])], lambda: some.nonzero(), lambda: torch.repeat_interleave(some),
        lambda: torch.ones(3).to(device), lambda: torch.tensor(1.0, device=device),
    ), start=1):
        wait()
        assert waits.total() == number, (number, waits)
print("done", flush=True)
import os; os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=second_device.__file__.rpartition("/")[0], capture_output=True, text=True
    )
    assert done.stdout == "done\n", done.stderr[-2000:]


def test_tensors_of_two_devices_do_not_mix():
    script = (
        "import torch, second_device as s\nwith s.SecondDevice():\n    torch.ones(3).to(s.register()) + torch.ones(3)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=second_device.__file__.rpartition("/")[0], capture_output=True, text=True
    )
    assert "tensors on two devices" in done.stderr
