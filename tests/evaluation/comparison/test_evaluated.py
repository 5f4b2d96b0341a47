"""Files of another shape in the folder of a comparison are errors that name the file, the key and the remedy."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from vlm_agent.errors import DatasetError, UserError
from vlm_agent.evaluation.comparison.evaluated import (
    read_data,
    read_metrics,
    read_online,
    read_origin,
    read_parameters,
    read_seconds,
)
from vlm_agent.evaluation.comparison.records import Records, read_progress
from vlm_agent.evaluation.comparison.results import results_of
from vlm_agent.evaluation.comparison.settings import ComparisonError
from vlm_agent.evaluation.comparison.stages import OFFLINE, ONLINE, RESULTS, TRAIN, Layout, Stage, Stages
from vlm_agent.files import read_checked, write_checked
from vlm_agent.models.run_layout import FINISHED

METRICS, ONLINE_FILE, RUN = "metrics.json", "online.json", "run.json"


@pytest.fixture
def stages(two_servers, tmp_path) -> Stages:
    """A copy that a test may damage."""
    shutil.copytree(two_servers.layout.output, tmp_path / "copy")
    return replace(two_servers, layout=Layout(tmp_path / "copy", two_servers.layout.shards))


def without(content: object, *keys: str) -> object:
    """A copy that lacks the value at the end of `keys`."""
    first, *rest = keys
    if not rest:
        return {key: value for key, value in content.items() if key != first}
    return content | {first: without(content[first], *rest)}


@pytest.mark.parametrize(
    ("kind", "name", "keys"),
    [
        (OFFLINE, METRICS, ("trained",)),
        (OFFLINE, METRICS, ("trained", "strict")),
        (OFFLINE, METRICS, ("trained", "about")),
        (OFFLINE, METRICS, ("trained", "official", "overall", "complete_match")),
        (OFFLINE, METRICS, ("blind_ceiling", "official", "overall")),
        (ONLINE, ONLINE_FILE, ("runs",)),
        (ONLINE, ONLINE_FILE, ("runs", "trained")),
        (ONLINE, ONLINE_FILE, ("runs", "expert")),
        (ONLINE, ONLINE_FILE, ("runs", "trained", "overall", "cost")),
        (ONLINE, ONLINE_FILE, ("runs", "trained", "overall", "side_effects_interval")),
        (ONLINE, ONLINE_FILE, ("tasks",)),
    ],
)
def test_a_key_that_an_evaluation_lacks_is_an_error_with_the_file_and_the_remedy(stages, kind, name, keys):
    path = stages.layout.of(kind, "enter", 0) / name
    write_checked(path, without(read_checked(path, ""), *keys))
    with pytest.raises(DatasetError) as error:
        results_of(stages, {}, {})
    message = str(error.value)
    assert message.startswith(f"{path} is damaged (")
    assert keys[-1] in message
    assert message.endswith("remove it and run the same command again")
    assert "\n" not in message


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"trained": 5}', '{"runs": 5}', '{"trained": {"official": [1]}}', "nul"]
)
def test_any_other_json_is_an_error_with_the_file(tmp_path, content):
    for name, read in ((METRICS, read_metrics), (ONLINE_FILE, read_online), (RUN, read_parameters)):
        (tmp_path / name).write_text(content)
        with pytest.raises(UserError, match=name):
            read(tmp_path)


def test_the_parameters_of_a_model_are_trained_and_frozen_ones_together(tmp_path):
    write_checked(tmp_path / RUN, {"figures": {"parameters": {"trained": 3, "frozen": 40}}})
    assert read_parameters(tmp_path) == 43


def stage(output: Path, kind: str = OFFLINE) -> Stage:
    return Stage(f"{kind}-one-0", ("evaluate", "--output", str(output)), kind)


def test_results_are_the_files_that_stages_write_last():
    assert RESULTS[TRAIN] == FINISHED


def test_a_finished_stage_whose_result_is_removed_runs_again(tmp_path):
    records = Records(tmp_path)
    for kind, name in ((OFFLINE, METRICS), (ONLINE, ONLINE_FILE), (TRAIN, RUN)):
        one = stage(tmp_path / kind, kind)
        records.add(one, command="vlm-agent evaluate")
        records.add(one, status=0, seconds=1.0, peak_gb=0.5)
        (tmp_path / kind).mkdir()
        (tmp_path / kind / name).write_text("{}")
        assert records.is_done(one)
        (tmp_path / kind / name).unlink()
        assert not records.is_done(one)
        assert name in records.why_not_done(one)


def test_a_stage_that_was_started_again_is_done_when_that_start_has_succeeded(tmp_path):
    """Its result is a folder, which exists from the first file on."""
    records, one = Records(tmp_path), stage(tmp_path / "one", TRAIN)
    records.note([one])
    records.add(one, command="vlm-agent train")
    records.add(one, status=0, seconds=1.0, peak_gb=0.5)
    one.result.parent.mkdir(parents=True, exist_ok=True)
    one.result.write_text("{}")
    for last, is_done in (
        ({"command": "vlm-agent train"}, False),
        ({"status": 1, "seconds": 1.0, "peak_gb": 0.5}, False),
        ({"command": "vlm-agent train"}, False),
        ({"status": 0, "seconds": 1.0, "peak_gb": 0.5}, True),
    ):
        records.add(one, **last)
        assert records.is_done(one) is is_done
        assert len(read_progress(tmp_path)[0]) == is_done


@pytest.mark.parametrize(
    "line",
    [{}, {"status": 0}, {"status": "0", "seconds": 1.0, "peak_gb": 0.5}, {"command": ["vlm-agent", "evaluate"]}, []],
)
def test_a_line_of_another_shape_in_the_record_of_a_stage_is_named(tmp_path, line):
    records, one = Records(tmp_path), stage(tmp_path / "one")
    records.add(one, command="vlm-agent evaluate")
    (path,) = tmp_path.rglob("*.jsonl")
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(ComparisonError) as error:
        records.is_done(one)
    assert str(error.value).startswith(f"{path}, line 2, is no line of this version (")
    assert str(error.value).endswith("remove this line; the stage then runs again")


def test_a_line_that_a_kill_cut_costs_no_later_line(tmp_path):
    records, one = Records(tmp_path), stage(tmp_path / "one")
    records.add(one, command="vlm-agent evaluate")
    (path,) = tmp_path.rglob("*.jsonl")
    path.write_text('{"comm')
    records.add(one, command="vlm-agent evaluate")
    assert records.by_stage([one])[one.name]["killed"]


def test_the_origin_of_a_run_is_its_hardware_and_commit_as_far_as_it_records_them(tmp_path):
    for record, words in (
        (
            {"figures": {"hardware": "device: CPU, 2 threads"}, "commit": "7d5d2f0ccd8e"},
            "CPU, 2 threads; commit 7d5d2f0",
        ),
        ({"figures": {"hardware": "device: CPU, 2 threads"}, "commit": None}, "CPU, 2 threads"),
        ({"figures": {}}, ""),
    ):
        (tmp_path / RUN).write_text(json.dumps(record))
        assert read_origin(tmp_path) == words


def test_a_run_is_named_with_its_data_and_all_seconds_of_its_training(tmp_path):
    figures = {"reads": "9 episodes, 9 sentences", "seconds": 12.5}
    record = {"figures": figures, "shards": "shards/phone", "manifest_sha256": "ab"}
    (tmp_path / RUN).write_text(json.dumps(record))
    assert read_data(tmp_path) == ("9 episodes, 9 sentences of shards shards/phone", "ab")
    assert read_seconds(tmp_path) == 12.5
    (tmp_path / RUN).write_text(json.dumps({"figures": {}}))
    assert (read_data(tmp_path), read_seconds(tmp_path)) == (("", None), None)
