"""Training and evaluation keep to one device: nothing mixes tensors of a GPU with tensors of the CPU."""

import json

import pytest
import torch
from helpers.hardware import second_device
from helpers.models import families
from helpers.training import forks

CPU = torch.device("cpu")
AGENTS = (*families.NAMES, families.QWEN_VL_2023)
NAMES = (*AGENTS, second_device.AUTO_UI)
every_family = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def there(tmp_path_factory) -> dict:
    """What each family computes on a device that is not the CPU."""
    printed = tmp_path_factory.mktemp("there") / "printed"
    status = forks.start(second_device.__file__, *NAMES, output=printed).wait()
    assert status == 0, printed.read_text()[-3000:]
    return json.loads(printed.read_text().splitlines()[-1])


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


def test_the_device_counts_what_makes_a_gpu_wait(there):
    assert there["itself"]["waits"] == list(range(10))


def test_tensors_of_two_devices_do_not_mix(there):
    assert "tensors on two devices" in there["itself"]["mixed"]
