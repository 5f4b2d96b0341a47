"""The entries of a viewed folder."""

import json
import shutil

from vlm_agent.evaluation.viewing.catalogue import MOST_PICTURES, entries_in, first_agent
from vlm_agent.models.run_layout import base_folder


def test_a_run_without_a_score_has_a_dash(tmp_path):
    scores = {scorer: {"overall": {"partial_match": None, "interval": None}} for scorer in ("official", "strict")}
    (tmp_path / "metrics.json").write_text(json.dumps({"trained": scores}))
    (entry,) = entries_in(tmp_path)
    assert entry.figures == "partial match, official and strict\ntrained: –, –"


def test_traces_of_an_agent_come_before_those_of_controls_and_these_before_baselines(played, tmp_path):
    runs = ("complete_at_once", "expert", "grey_screens", "trained")
    for run in runs:
        shutil.copytree(played, tmp_path / run / "00000")
    entries = entries_in(tmp_path)
    assert [entry.parent for entry in entries] == ["trained", "grey_screens", "complete_at_once", "expert"]
    assert all(entry.success and entry.pictures[0].startswith("screen_") for entry in entries)


def test_a_folder_of_pictures_shows_the_first_ones(tmp_path):
    for number in range(MOST_PICTURES + 3):
        (tmp_path / f"{number:02d}.png").touch()
    (entry,) = entries_in(tmp_path)
    assert (entry.kind, len(entry.pictures), entry.pictures[0]) == ("pictures", MOST_PICTURES, "00.png")


def test_a_run_with_a_damaged_file_is_listed_with_the_reason(tmp_path):
    (tmp_path / "recipe.yaml").touch()
    (tmp_path / "progress.jsonl").write_text('{"step": 1, "loss": "x"}\n')
    (entry,) = entries_in(tmp_path)
    assert entry.kind == "training run"
    assert entry.figures.startswith(f"cannot be read: {tmp_path / 'progress.jsonl'} is damaged (")


def test_the_first_finished_run_whose_recipe_can_be_read_is_asked(tmp_path):
    for name, recipe in {"a": "nonsense: 1", "b": (base_folder("phone_vlm_tiny") / "recipe.yaml").read_text()}.items():
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "model" / "config.json").touch()
        (tmp_path / name / "recipe.yaml").write_text(recipe)
        assert (first_agent(tmp_path) is None) == (name == "a")
    assert first_agent(tmp_path).run == str(tmp_path / "b")


def test_metrics_with_an_empty_interval_are_listed_as_unexpected(tmp_path):
    (tmp_path / "metrics.json").write_text(
        '{"trained": {"official": {"overall": {"partial_match": 1.0, "interval": []}}}}'
    )
    (entry,) = entries_in(tmp_path)
    assert entry.figures.startswith("cannot be read: unexpected content (IndexError")
