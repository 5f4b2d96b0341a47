"""The prompting agent: its settings, their identity, and its prompts."""

import pytest

from vlm_agent.agents.coat import CoatAgentSettings
from vlm_agent.agents.coat.prompts import PROMPTS, CoatPrompts
from vlm_agent.agents.llm.prompts import PromptError
from vlm_agent.agents.loading import AgentError, agent_settings


@pytest.mark.parametrize(
    ("settings", "inputs", "notes"),
    [
        ({"mode": "coa"}, (), []),
        ({}, ("screen", "result", "action"), ["earlier actions without a description"]),
        ({"thoughts": True}, ("screen", "result", "think", "action"), ["earlier actions without a description"]),
        ({"texts": "phone"}, ("action",), ["screen descriptions", "action results"]),
        ({"texts": "model"}, ("action",), ["screen descriptions", "action results"]),
    ],
)
def test_the_settings_name_the_texts_that_are_read_and_their_origin(settings, inputs, notes):
    chosen = CoatAgentSettings(endpoint="http://a:1", model="vlm", **settings)
    assert chosen.text_inputs == inputs
    assert [name for name in chosen.text_notes if name in notes] == notes


def test_the_identity_has_prompts_and_mode_and_no_address_or_price(tmp_path):
    base = {"endpoint": "http://a:1", "model": "vlm"}
    identity = CoatAgentSettings(**base).identity()
    same = CoatAgentSettings(**base | {"endpoint": "http://b:2", "calls": "x", "price": {"read": 1, "written": 1}})
    assert same.identity() == identity
    own = tmp_path / "prompts.yaml"
    own.write_text(PROMPTS.read_text().replace("Which action is next?", "What now?"))
    for change in (
        {"mode": "coa"},
        {"elements": "marks"},
        {"texts": "model"},
        {"thoughts": True},
        {"prompts": str(own)},
    ):
        assert CoatAgentSettings(**base | change).identity() != identity
    assert CoatAgentSettings(**base).language.name == "coat"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('question: "', 'qestion: "', "unknown key qestion"),
        ("$goal", "$gaol", "goal must have $goal"),
        ("$form", "$ form", "system must have $click and $form"),
        ("  box: ", "  bx: ", "clicks"),
    ],
)
def test_a_damaged_file_of_prompts_is_an_error_that_names_the_key(tmp_path, old, new, words):
    path = tmp_path / "prompts.yaml"
    path.write_text(PROMPTS.read_text().replace(old, new))
    with pytest.raises(PromptError, match=str(path)) as caught:
        CoatPrompts.read(path)
    assert words in str(caught.value)


def test_texts_are_not_searched_for_placeholders():
    prompts: CoatPrompts = CoatPrompts.read(PROMPTS)
    assert prompts.fill("goal", goal="$goal $$ ${x}") == "Goal: $goal $$ ${x}"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mode: cott", "mode"),
        ("mode: cot\nthoughts: true", "thoughts is for mode coat"),
        ("max_cost: 3", "max_cost needs a price"),
        ("price: {read: 1}", "written"),
    ],
)
def test_an_invalid_setting_is_an_error(tmp_path, line, words):
    path = tmp_path / "coat.yaml"
    path.write_text(f"agent: coat\nendpoint: http://a:1\nmodel: vlm\n{line}\n")
    with pytest.raises(AgentError, match=words):
        agent_settings(str(path))
