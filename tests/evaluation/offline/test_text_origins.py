"""The report names the origin of each text that the agent reads, and shuffled results are a control."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers import tiny
from helpers.data.notes import row, with_texts
from helpers.runs import adapted_run

from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.cli import OK, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.evaluation.about import ANNOTATION, DEMONSTRATION, MISSING, PHONE, text_origins
from vlm_agent.files import read_checked
from vlm_agent.texts.phone import result_text, screen_text

ANNOTATED = with_texts(tiny.episode(0))


def of_the_phone(episode: Episode) -> Episode:
    steps = list(with_texts(episode).steps)
    for number, step in enumerate(steps):
        after = steps[min(number + 1, len(steps) - 1)]
        texts = {"screen": screen_text(step.screen), "result": result_text(step.screen, after.screen)}
        steps[number] = replace(step, notes={**step.notes, **texts})
    return replace(episode, steps=tuple(steps))


def origins(folder: Path, episodes: list[Episode], *text_inputs: str) -> dict[str, str]:
    dataset = ShardDataset(tiny.write_shards(folder, episodes, split="test"))
    return text_origins(dataset, range(len(dataset)), text_inputs)


def test_annotations_and_texts_of_the_phone_are_distinguished(tmp_path):
    bare = tiny.episode(2)
    empty = replace(
        bare, id="3", steps=(replace(ANNOTATED.steps[0], notes={**ANNOTATED.steps[0].notes, "screen": ""}),)
    )
    episodes = [ANNOTATED, of_the_phone(tiny.episode(1)), bare, empty]
    assert origins(tmp_path, episodes, "screen", "result", "think") == {
        "screen descriptions": f"10 steps: {PHONE}; 5 steps: {ANNOTATION}; 1 steps: {MISSING}",
        "action results": f"8 steps: {PHONE}; 4 steps: {ANNOTATION}",  # no step reads that of the last action
        "earlier thoughts": f"8 steps: {DEMONSTRATION}; 4 steps: {MISSING}",
    }


def test_an_agent_without_texts_has_no_line(tmp_path):
    assert origins(tmp_path, [ANNOTATED]) == {}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("evaluated")
    run = adapted_run.write_run(folder, steps=1)
    recipe = run / "recipe.yaml"
    content = yaml.safe_load(recipe.read_text())
    content["data"] |= {"notes": row(10), "max_note_tokens": 8}
    recipe.write_text(yaml.safe_dump(content))
    shards = tiny.write_shards(folder / "test", [ANNOTATED, of_the_phone(tiny.episode(1))], split="test")
    command = ["evaluate", "--checkpoint", str(run), "--shards", str(shards), "--output", str(folder / "out")]
    assert main([*command, "--workers", "0"]) == OK
    return run, folder / "out"


def test_an_evaluation_has_the_control_and_the_report_the_lines(evaluated):
    run, output = evaluated
    scores = read_checked(output / "metrics.json", "evaluate again")
    assert list(scores)[:4] == ["trained", "grey_screens", "no_history", "shuffled_results"]
    report = (output / "report.html").read_text()
    for name in ("screen descriptions", "action results", "earlier thoughts", "earlier action descriptions"):
        assert name in report
    assert f"5 steps: {ANNOTATION}; 5 steps: {PHONE}" in report
    plan = json.loads((output / "plan.json").read_text())["described"]
    assert plan["text_inputs"] == ["result", "screen", "think", "action"] == list(VlmSettings(run=str(run)).text_inputs)


def test_the_same_command_scores_again(evaluated):
    run, output = evaluated
    before = (output / "metrics.json").read_text()
    shards = output.parent / "test"
    command = ["evaluate", "--checkpoint", str(run), "--shards", str(shards), "--output", str(output)]
    assert main([*command, "--workers", "0"]) == OK
    assert (output / "metrics.json").read_text() == before


def test_runs_without_texts_have_no_text_inputs(tmp_path):
    from vlm_agent.evaluation.about import agent_identity

    identity = agent_identity(VlmSettings(run=str(adapted_run.write_run(tmp_path, steps=1))))
    assert set(identity) == {"agent", "language", "text_inputs"}
    assert identity["text_inputs"] == []
