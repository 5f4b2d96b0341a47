"""An endpoint agent with the user's own prompt, in the language of a released agent."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.agents.chat_server import Reply, serving

from vlm_agent.agents import Turn
from vlm_agent.agents.loading import agent_settings
from vlm_agent.episodes import Action, Screen
from vlm_agent.errors import UserError

SCREEN = Screen(np.zeros((240, 108, 3), np.uint8), instruction="Tap the clock")
HISTORY = [
    Turn(replace(SCREEN, instruction="Go home"), None, Action.press("home")),
    Turn(replace(SCREEN, instruction=None), None, Action.swipe((0.75, 0.5), (0.25, 0.5))),
]
PROMPT = """
system: Screen of $width x $height.
user: |-
  Query: $goal for $$5, now $instruction
  $calls
  $steps
"""


def agent(folder, prompt: str, url: str = "http://localhost:1", **keys):
    path = folder / "prompt.yaml"
    path.write_text(prompt)
    overrides = {"endpoint": url, "prompt": str(path), "calls": str(folder / "calls")} | keys
    return agent_settings("eval/agents/qwen25_mobile_use.yaml", overrides=overrides)


def texts(messages) -> list[list[str]]:
    return [
        [message["content"]]
        if isinstance(message["content"], str)
        else [part.get("text", part["type"]) for part in message["content"]]
        for message in messages
    ]


def test_placeholders_are_filled_and_the_screen_follows(tmp_path):
    messages = agent(tmp_path, PROMPT).load().messages("$goal", HISTORY, SCREEN)
    assert [message["role"] for message in messages] == ["system", "user"]
    (size,), (text, picture) = texts(messages)
    assert size == "Screen of 112 x 252."  # as Qwen2.5-VL resizes it
    lines = text.splitlines()
    assert lines[0] == "Query: $goal for $5, now Tap the clock"
    assert lines[1:4] == ["Step 1: <tool_call>", lines[2], "</tool_call>"]
    assert '"button": "Home"' in lines[2]
    assert lines[-2:] == ["Step 1: Go home", "Step 2: scroll up"]
    assert picture == "image_url"


def test_the_report_says_which_recorded_texts_a_prompt_shows(tmp_path):
    def shown(prompt: str) -> tuple:
        settings = agent(tmp_path, f"user: {prompt}")
        return settings.text_inputs, settings.text_notes

    assert shown("$goal $calls") == ((), {})
    assert shown("$goal $steps") == (("action",), {})
    assert shown("$instruction") == ((), {"instructions": "recorded, of the current step; no phone gives it"})


def test_a_goal_that_utf8_cannot_hold_is_sent_with_question_marks(tmp_path):
    with serving(lambda number, body: Reply(body["messages"][0]["content"][0]["text"])) as (url, _):
        assert agent(tmp_path, "user: $goal", url).load().act("go \udcff", (), SCREEN).text == "go ?"


def test_past_screens_are_turns_with_their_answers(tmp_path):
    loaded = agent(tmp_path, "user: 'Query: $goal\n\n  $calls'", past_screens=1).load()
    messages = loaded.messages("go", HISTORY, SCREEN)
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    first, answer, last = texts(messages)
    assert first[0].startswith("Query: go\nStep 1:") and "Step 2" not in first[0]
    assert '"swipe"' in answer[0] and last == ["image_url"]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("user: $goal $gaol", r"\$gaol is unknown; placeholders are \$goal, \$instruction, \$calls, \$steps, \$width"),
        ("user: $calls", r"\$goal or \$instruction is missing; placeholders are \$goal"),
        ("user: $goal costs $ 5", r"a dollar sign is written \$\$; placeholders are"),
        ("system: $goal", "user"),
    ],
)
def test_a_prompt_that_cannot_be_used_says_why(tmp_path, prompt, message):
    with pytest.raises(UserError, match=message):
        agent(tmp_path, prompt).load()


def test_a_step_without_an_instruction_says_so(tmp_path):
    loaded = agent(tmp_path, "user: $instruction").load()
    with pytest.raises(UserError, match=r"the prompt has \$instruction, and this step has none"):
        loaded.messages("go", (), replace(SCREEN, instruction=None))


def test_the_content_of_the_prompt_is_part_of_the_agents_identity(tmp_path):
    first, second = (agent(tmp_path, f"user: $goal {number}").identity() for number in (1, 2))
    assert first != second
    plain = agent_settings("eval/agents/qwen25_mobile_use.yaml", overrides={"endpoint": "http://localhost:1"})
    assert "prompt" not in plain.identity()


def test_an_answer_is_decoded_on_the_size_of_its_screen(tmp_path):
    answer = (
        '<tool_call>\n{"name": "mobile_use", "arguments": {"action": "click", "coordinate": [56, 63]}}\n</tool_call>'
    )
    with serving(lambda number, body: Reply(answer)) as (url, _):
        found = agent(tmp_path, "user: $goal", url).load().act("go", (), SCREEN)
    assert found.action == Action.tap(0.25, 0.5)
