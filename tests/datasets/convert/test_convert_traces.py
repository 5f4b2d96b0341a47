"""What agents did on phones becomes shards like any demonstration."""

from io import StringIO

import numpy as np
import pytest
from helpers.data.made_episodes import traced_episode
from rich.console import Console

from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import DONE, IN_DOUBT, UNPARSED, WITHHELD, Heading, TraceStep, read_trace
from vlm_agent.episodes import Action, UiElement
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.online.runs import BASELINES, EXPERT, play
from vlm_agent.simulator.demonstrations import simulated_tasks


def run(source, output, **options):
    return convert("trace", [source], output, (), Console(file=StringIO()), workers=1, **options)


def played(folder, count=3):
    for index, task in enumerate(simulated_tasks(count, 0)):
        play(EXPERT, BASELINES[EXPERT], task, folder / f"{index:05d}")
    return [traced_episode(read_trace(folder / f"{index:05d}")) for index in range(count)]


def test_a_folder_of_traces_becomes_shards_that_hold_their_episodes(tmp_path):
    episodes = {episode.id: episode for episode in played(tmp_path / "traces")}
    summary = run(tmp_path / "traces", tmp_path / "shards")
    assert summary.quarantined == 0
    dataset = ShardDataset(tmp_path / "shards")
    assert len(dataset) == len(episodes)
    for index in range(len(dataset)):
        found, wanted = dataset[index], episodes[dataset.ids[index].rpartition(" ")[0]]
        assert (found.goal, found.subset, found.device_type) == (wanted.goal, wanted.subset, wanted.device_type)
        assert len(found) == len(wanted)
        for step, expected in zip(found.steps, wanted.steps, strict=True):
            assert step.action.name == expected.action.name
            np.testing.assert_allclose(step.action.touch_yx, expected.action.touch_yx, atol=1e-6)
            assert np.array_equal(step.screenshot, expected.screenshot)
            assert step.activity == expected.activity
            assert [element.text for element in step.elements] == [element.text for element in expected.elements]


def test_two_evaluations_that_play_the_same_tasks_are_all_kept(tmp_path):
    played(tmp_path / "traces/first", 2)
    for index, task in enumerate(simulated_tasks(2, 0)):
        play(EXPERT, lambda _: ScriptedAgent((Action.press("home"),)), task, tmp_path / f"traces/second/{index:05d}")
    summary = run(tmp_path / "traces", tmp_path / "shards")
    assert summary.quarantined == 0
    assert len(set(ShardDataset(tmp_path / "shards").ids)) == 4


def test_traces_that_need_one_more_part_are_refused_with_the_numbers_of_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("vlm_agent.datasets.sources.EPISODES_PER_SHARD", 1)
    played(tmp_path / "traces", 1)
    run(tmp_path / "traces", tmp_path / "shards")
    played(tmp_path / "traces/more", 1)
    with pytest.raises(DatasetError, match=r"\n  inputs [a-z_/]+-\*: 1 parts before, 2 parts now$"):
        run(tmp_path / "traces", tmp_path / "shards", update=True)


def test_a_killed_trace_is_converted_as_far_as_it_goes(tmp_path):
    played(tmp_path / "traces", 1)
    path = tmp_path / "traces" / "00000" / "steps.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]) + lines[5][:9])  # in the outcome of the third step
    summary = run(tmp_path / "traces", tmp_path / "shards")
    assert summary.quarantined == 0
    assert (summary.total("steps_read"), summary.total("steps_left_out")) == (3, 1)
    assert len(ShardDataset(tmp_path / "shards")[0]) == 2


def test_every_trace_and_every_step_is_counted(tmp_path):
    endings = {
        "a": [DONE, DONE],
        "b": [DONE, WITHHELD],
        "c": [WITHHELD],
        "d": [DONE, IN_DOUBT, DONE, UNPARSED],
        "e": [],
    }
    for name, outcomes in endings.items():
        with TraceWriter(tmp_path / "traces" / name, Heading(name, "buy", "agent", "phone")) as trace:
            for number, outcome in enumerate(outcomes):
                screen = trace.screen(number, np.zeros((8, 4, 3), np.uint8)).name
                action = None if outcome == UNPARSED else Action.tap(0.5, number / 10)
                trace.step(TraceStep(number, screen, "", (), "", action))
                trace.outcome(number, outcome)
    printed = StringIO()
    convert("trace", [tmp_path / "traces"], tmp_path / "shards", (), Console(file=printed, width=200), workers=1)
    manifest = ShardDataset(tmp_path / "shards").manifest
    assert {name: manifest[name] for name in ("steps_read", "steps_written", "steps_left_out")} == {
        "steps_read": 9,
        "steps_written": 4,
        "steps_left_out": 5,
    }
    assert manifest["exclusions"] == {"after an action in doubt": 1, "in doubt": 1, "no action": 1, "withheld": 2}
    assert manifest["episodes_written"] == 3
    assert manifest["episodes_left_out"] == {"no action was performed": 2}
    assert "2 step(s) excluded: withheld" in printed.getvalue()
    assert "2 episode(s) excluded: no action was performed" in printed.getvalue()


def test_a_trace_with_a_damaged_line_is_quarantined_as_a_whole(tmp_path):
    played(tmp_path / "traces", 2)
    path = tmp_path / "traces" / "00000" / "steps.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b"{}\n"
    path.write_bytes(b"".join(lines))
    steps = sum(b'"step"' in line for line in lines)
    summary = run(tmp_path / "traces", tmp_path / "shards")
    assert summary.quarantined == steps + 1
    assert len(ShardDataset(tmp_path / "shards")) == 1


def test_a_trace_whose_heading_is_damaged_is_quarantined(tmp_path):
    played(tmp_path / "traces", 2)
    (tmp_path / "traces" / "00001" / "trace.json").write_text("{")
    assert run(tmp_path / "traces", tmp_path / "shards").quarantined == 1
    assert len(ShardDataset(tmp_path / "shards")) == 1


def test_the_notes_of_an_agent_are_kept(tmp_path):
    screen = np.zeros((8, 4, 3), np.uint8)
    written = ({"step": "tap on Clock", "plan": "open the clock ⏰\ntap on Alarm"}, {"action": "tap on Alarm"}, {})
    with TraceWriter(tmp_path / "traces/a", Heading("a", "set an alarm", "planner", "phone")) as trace:
        for number, notes in enumerate(written):
            name = trace.screen(number, screen).name
            trace.step(TraceStep(number, name, "", (), "", Action.tap(0.5, 0.5), notes=notes))
            trace.outcome(number, DONE)
        trace.end("complete", "")
    assert [step.notes for step in traced_episode(read_trace(tmp_path / "traces/a")).steps] == [*written]
    run(tmp_path / "traces", tmp_path / "shards")
    assert [step.notes for step in ShardDataset(tmp_path / "shards").without_pixels(0).steps] == [*written]


def test_a_trace_with_a_masked_password_teaches_nobody_to_type_the_mask(tmp_path):
    played(tmp_path / "traces", 1)
    screen, field = np.zeros((8, 4, 3), np.uint8), (UiElement((0, 0, 1, 1), "Password"),)
    with TraceWriter(tmp_path / "traces" / "secret", Heading("s", "log in", "agent", "phone")) as trace:
        name = trace.screen(0, screen).name
        for number, action in enumerate((Action.tap(0.5, 0.5), Action.type_text("hunter2"), Action.complete())):
            trace.step(TraceStep(number, name, "a", field, "", action))
            trace.outcome(number, DONE)
        trace.end("complete")
    summary = run(tmp_path / "traces", tmp_path / "shards")
    assert summary.quarantined == 3
    assert "s" not in ShardDataset(tmp_path / "shards").ids
    assert len(ShardDataset(tmp_path / "shards")) == 1
