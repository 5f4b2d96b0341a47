"""Traces are read as they were written, and damage is reported."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny
from helpers.data.made_episodes import traced_episode

from vlm_agent.datasets.sources import BadRecord, Exclusion, trace_writer
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import (
    DONE,
    FAILED,
    IN_DOUBT,
    UNPARSED,
    WITHHELD,
    Heading,
    TraceStep,
    read_steps,
    read_trace,
    sealed,
)
from vlm_agent.episodes import Action, Episode, Step, UiElement
from vlm_agent.errors import DatasetError

HEADING = Heading("e1", "grüße 👋", "agent", "pixel", "install", "install/test/7", (64, 32))
EPISODE = tiny.episode(0)


def write(folder, outcomes=None, episode=EPISODE):
    """A trace of the episode; returns its steps as they were written."""
    steps = []
    with TraceWriter(folder, HEADING) as trace:
        for number, step in enumerate(episode.steps):
            outcome = DONE if outcomes is None else outcomes[number]
            action = None if outcome == UNPARSED else step.action
            screen = trace.screen(number, step.screenshot)
            elements = None if number == 1 else step.elements
            told = TraceStep(
                number, screen.name, "a/.B", elements, "tap …", action, tokens=(5, 2), seconds={"agent": 0.25}
            )
            trace.step(told)
            if outcome != IN_DOUBT:
                trace.outcome(number, outcome)
            steps.append(TraceStep(**vars(told) | {"outcome": outcome}))
        trace.end("complete", "as it was")
    return steps


def test_a_trace_is_read_as_it_was_written(tmp_path):
    steps = write(tmp_path / "t")
    trace = read_trace(tmp_path / "t")
    assert trace.heading == HEADING
    assert list(trace.steps) == steps
    assert trace.end == {"end": "complete", "message": "as it was"}
    assert all(np.array_equal(trace.screen(step), EPISODE.steps[step.number].screenshot) for step in steps)


def test_texts_that_are_no_unicode_end_no_run_and_are_read_with_marks(tmp_path):
    heading = replace(HEADING, agent="a\udcff")
    with pytest.raises(DatasetError, match="bad path"), TraceWriter(tmp_path / "t", heading) as trace:
        screen = trace.screen(0, EPISODE.steps[0].screenshot).name
        elements = (UiElement((0.0, 0.0, 1.0, 1.0), "x\ud800"),)
        trace.step(TraceStep(0, screen, "a/.\ud800", elements, "\ud800", Action.press("back")))
        raise DatasetError("bad path /\udcff")
    trace = read_trace(tmp_path / "t")
    assert (trace.heading.agent, trace.steps[0].elements[0].text, trace.steps[0].activity) == ("a?", "x?", "a/.?")
    assert trace.ending == "Ended: error, DatasetError: bad path /?"


def test_actions_of_the_kinds_that_came_after_aitw_are_read_as_they_were_written(tmp_path):
    actions = [Action.long_press(0.25, 0.5), Action.open_app("Uhr"), Action.wait(), Action.recents(), Action.answer("")]
    steps = tuple(Step(EPISODE.steps[0].screenshot, action) for action in actions)
    write(tmp_path / "t", episode=Episode("e1", "install", "go", steps))
    assert [step.action for step in read_trace(tmp_path / "t").steps] == actions
    assert [record.step.action for record in read_steps(tmp_path / "t")] == actions


def test_an_episode_has_the_performed_actions_before_the_first_one_in_doubt(tmp_path):
    write(tmp_path / "t", [DONE, UNPARSED, DONE, IN_DOUBT, DONE])
    expected = [EPISODE.steps[number] for number in (0, 2)]
    episode = traced_episode(read_trace(tmp_path / "t"))
    assert (episode.id, episode.subset, episode.goal) == ("e1", "install", "grüße 👋")
    assert [step.action for step in episode.steps] == [step.action for step in expected]
    *records, unparsed, doubtful, after = read_steps(tmp_path / "t")
    assert [(record.step_id, record.episode_length) for record in records] == [(0, 2), (1, 2)]
    reasons = ("no action", "in doubt", "after an action in doubt")
    assert [unparsed, doubtful, after] == [Exclusion(reason, steps=1) for reason in reasons]
    for record, step in zip(records, expected, strict=True):
        assert record.step.action == step.action
        assert np.array_equal(record.step.screenshot, step.screenshot)


def test_steps_that_were_not_performed_are_left_out_without_a_gap(tmp_path):
    write(tmp_path / "t", [DONE, UNPARSED, FAILED, WITHHELD, DONE])
    first, last, *excluded = read_steps(tmp_path / "t")
    assert [(record.step_id, record.episode_length) for record in (first, last)] == [(0, 2), (1, 2)]
    assert [one.reason for one in excluded] == ["no action", "failed", "withheld"]


def test_a_trace_without_a_performed_action_is_an_excluded_episode(tmp_path):
    write(tmp_path / "t", [WITHHELD] * 5)
    *steps, episode = read_steps(tmp_path / "t")
    assert steps == [Exclusion("withheld", steps=1)] * 5
    assert episode == Exclusion("no action was performed", episodes=1)


def test_an_answer_without_an_action_is_not_in_doubt_even_if_a_kill_followed(tmp_path):
    write(tmp_path / "t", [DONE, UNPARSED, DONE, DONE, DONE])
    path = tmp_path / "t" / "steps.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"of": 1' not in line), encoding="utf-8")
    assert read_trace(tmp_path / "t").outcomes() == {DONE: 4, UNPARSED: 1}
    assert len(traced_episode(read_trace(tmp_path / "t"))) == 4


def test_a_last_line_that_was_being_written_counts_for_nothing(tmp_path):
    write(tmp_path / "t")
    path = tmp_path / "t" / "steps.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]) + lines[-3][:-9])  # in the last step's line
    trace = read_trace(tmp_path / "t")
    assert len(trace.steps) == len(EPISODE) - 1
    assert trace.end is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda step: step.update(action={"kind": 99}), "kind 99"),
        (lambda step: step.update(action={"kind": 4, "touch_yx": [2, 0], "lift_yx": [0, 0]}), "within"),
        (lambda step: step.update(elements=[[0, 0, 1]]), "not a line"),
        (lambda step: step.update(elements=[[0, 0, float("nan"), 1, "a", "TEXT"]]), "elements holds nan"),
        (lambda step: step.update(elements=[[0, 0, "1e999", 1, "a", "TEXT"]]), "elements holds '1e999'"),
        (lambda step: step.update(seconds={"agent": float("inf")}), "seconds holds inf"),
        (lambda step: step.update(seconds=[1]), "not a line"),
        (lambda step: step.update(step=-1), "step is -1"),
        (lambda step: step.update(said=7), "said holds 7"),
        (lambda step: step.update(notes={"\ud800": ""}), "the name of a note is not valid Unicode at character 0"),
        (lambda step: step.pop("screen"), "screen"),
    ],
)
def test_a_damaged_line_is_named_and_leaves_a_gap_in_the_episode(tmp_path, change, why):
    write(tmp_path / "t")
    path = tmp_path / "t" / "steps.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    step = json.loads(lines[2])
    change(step)
    del step["crc32"]
    lines[2] = sealed(json.dumps(step))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=rf"line 3: .*{why}"):
        read_trace(tmp_path / "t")
    records = list(read_steps(tmp_path / "t"))
    assert [isinstance(record, BadRecord) for record in records] == [False, True, False, False, False]
    assert records[0].episode_length == 5


def test_a_line_without_its_checksum_is_read_only_beside_a_heading_without_one(tmp_path):
    write(tmp_path / "t")
    path, heading = tmp_path / "t/steps.jsonl", tmp_path / "t/trace.json"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    texts = [json.dumps({key: line[key] for key in line if key != "crc32"}) for line in lines]
    expected = read_trace(tmp_path / "t")
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    with pytest.raises(DatasetError, match=r"steps.jsonl, line 1: the line has no checksum"):
        read_trace(tmp_path / "t")
    content = json.loads(heading.read_text(encoding="utf-8"))
    del content["checksum"]
    heading.write_text(json.dumps(content), encoding="utf-8")
    assert read_trace(tmp_path / "t") == expected


def test_a_screen_outside_the_trace_is_not_read(tmp_path):
    write(tmp_path / "t")
    (tmp_path / "secret.png").write_bytes((tmp_path / "t" / "screen_000.png").read_bytes())
    path = tmp_path / "t" / "steps.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines[0]["screen"] = "../secret.png"
    texts = [json.dumps({key: line[key] for key in line if key != "crc32"}) for line in lines]
    path.write_text("".join(f"{sealed(text)}\n" for text in texts), encoding="utf-8")
    assert "is missing" in next(read_steps(tmp_path / "t")).reason


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "size": null}'])
def test_a_damaged_heading_is_reported(tmp_path, text):
    _check_heading_is_reported(tmp_path, text)


@pytest.mark.parametrize(
    "size", ["[Infinity, 2]", "[NaN, 2]", "[1e999, 2]", "[0, 2]", "[2, 2, 2]", "[2.5, 2]", '["2", 2]', "7"]
)
def test_a_heading_whose_size_is_not_that_of_a_screen_is_reported(tmp_path, size):
    keys = '"version": 2, "id": "1", "goal": "go", "agent": "a", "device": "d"'
    _check_heading_is_reported(tmp_path, f'{{{keys}, "size": {size}}}')


@pytest.mark.parametrize("subset", ["manifest.json", "index.parquet", "quarantine.jsonl", "groups.json", "all", "lock"])
def test_a_subset_that_takes_the_name_of_a_file_is_reported(tmp_path, subset):
    keys = '"version": 2, "id": "1", "goal": "go", "agent": "a", "device": "d", "size": null'
    _check_heading_is_reported(tmp_path, f'{{{keys}, "subset": "{subset}"}}')


def _check_heading_is_reported(tmp_path, text):
    write(tmp_path / "t")
    (tmp_path / "t" / "trace.json").write_text(text)
    with pytest.raises(DatasetError, match=r"trace\.json"):
        read_trace(tmp_path / "t")
    (bad,) = read_steps(tmp_path / "t")
    assert isinstance(bad, BadRecord)


def test_nothing_is_written_over(tmp_path):
    write(tmp_path / "t")
    with pytest.raises(DatasetError, match="not an empty folder"):
        TraceWriter(tmp_path / "t", HEADING)


def test_of_two_runs_that_begin_in_one_folder_at_once_one_is_refused_and_the_other_keeps_its_trace(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(trace_writer, "check_trace_folder", lambda _: None)  # both have found it empty
    with TraceWriter(tmp_path / "t", HEADING), pytest.raises(FileExistsError, match=r"steps\.jsonl"):
        TraceWriter(tmp_path / "t", replace(HEADING, goal="another"))
    assert read_trace(tmp_path / "t").heading.goal == HEADING.goal


def test_a_trace_that_ended_with_an_exception_is_marked(tmp_path):
    with pytest.raises(ZeroDivisionError), TraceWriter(tmp_path / "t", HEADING):
        raise ZeroDivisionError("by nothing")
    assert read_trace(tmp_path / "t").end == {"end": "error", "message": "ZeroDivisionError: by nothing"}
