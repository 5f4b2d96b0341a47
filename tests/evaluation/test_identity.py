"""What tables call runs: the agent by its own name, as it is written, and every run by a name of its own."""

import pytest

from vlm_agent.agents.endpoint import EndpointSettings
from vlm_agent.agents.of_run import name_of_run
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.evaluation.about import names_in_tables


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("phone_vlm_tiny", "phone_vlm_tiny"),
        ("runs/llama2_7b/", "llama2_7b"),
        ("runs/llama2_7b/../qwen", "qwen"),
        ("runs/llama/0", "llama/0"),
        ("runs/llama/checkpoints/checkpoint-50", "llama checkpoint-50"),
        ("runs/llama/0/checkpoints/checkpoint-50", "llama/0 checkpoint-50"),
    ],
)
def test_a_run_has_the_name_of_its_folder(run, name):
    assert name_of_run(run) == name


def test_a_served_model_has_its_own_name():
    assert EndpointSettings(endpoint="http://localhost:8000/v1", model="org/Qwen-7B").run_label == "org/Qwen-7B"


def test_the_agent_is_named_as_it_is_written_and_others_in_words():
    assert names_in_tables(["trained", "no_history"], "my_run") == {"trained": "my_run", "no_history": "no history"}


@pytest.mark.parametrize("label", ["no_history", "no history"])
def test_an_agent_with_the_name_of_another_run_keeps_a_row_of_its_own(label):
    names = names_in_tables(["trained", "no_history"], label)
    assert names == {"trained": f"{label} (agent)", "no_history": "no history"}


def test_an_agent_may_be_called_trained():
    assert names_in_tables(["trained", "blind_ceiling"], "trained")["trained"] == "trained"


def test_the_identity_of_a_run_is_that_of_exact_free_decoding_by_default():
    identity = VlmSettings(run="phone_vlm_tiny").identity()
    assert identity["bf16"] is False
    assert identity["constrained"] is False
    assert VlmSettings(run="phone_vlm_tiny", constrained=True).identity() == identity | {"constrained": True}
