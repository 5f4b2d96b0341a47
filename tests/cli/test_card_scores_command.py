"""Model cards by the commands: train writes one, evaluate leaves it, card adds scores, merge writes its own."""

import json
import shutil
from pathlib import Path

import pytest
from helpers import tiny
from helpers.runs import adapted_run
from huggingface_hub import ModelCard

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.shards.dataset import manifest_digest
from vlm_agent.files import sha256_of
from vlm_agent.models.run_layout import trained
from vlm_agent.models.weights.origin import record_learned

RECIPE = Path(__file__).parents[2] / "recipes" / "llama_vit_tiny.yaml"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A run, and an evaluation of it."""
    folder = tmp_path_factory.mktemp("cards")
    episodes = [tiny.episode(number) for number in range(3)]
    shards = tiny.write_shards(folder / "shards", episodes)
    keys = ["--data.shards", str(shards), "--training.steps", "5", "--output", str(folder / "run")]
    keys += ["--model.screen_size", "[64, 32]", "--model.visual_grid", "[4, 2]"]  # seconds instead of minutes
    assert main(["train", "--config", str(RECIPE), *keys]) == OK
    card = (folder / "run" / "README.md").read_bytes()
    test = tiny.write_shards(folder / "test", episodes[:2], split="test")
    words = ["evaluate", "--checkpoint", str(folder / "run"), "--shards", str(test), "--output", str(folder / "out")]
    assert main(words) == OK
    assert (folder / "run" / "README.md").read_bytes() == card
    return folder, keys


def test_a_finished_run_has_a_card(world):
    folder, _ = world
    text = (folder / "run" / "README.md").read_text()
    assert (folder / "run" / "model" / "README.md").read_text() == text
    record = json.loads((folder / "run" / "run.json").read_text())
    assert record["manifest_sha256"] == manifest_digest(folder / "shards")
    assert record["manifest_sha256"] in text
    assert "3 episodes, 3 sentences" in text
    assert "1 rank(s)" in text
    assert str(folder) not in text
    assert ModelCard(text).data.library_name == "vlm-agent"


def test_scores_of_an_evaluation_are_put_into_the_card_and_change_no_digest(world, capsys):
    folder, keys = world
    run, digest = folder / "run", sha256_of(trained(folder / "run").files)
    assert main(["card", str(run), "--scores", str(folder / "out")]) == OK
    assert "README.md: 1 evaluation(s)\n" in capsys.readouterr().out
    assert main(["card", str(run), "--license", "mit"]) == OK
    assert capsys.readouterr().out == f"Updated {run / 'README.md'}\n"
    card = (run / "README.md").read_text()
    results = ModelCard(card).data.eval_results
    rows = json.loads((folder / "out" / "metrics.json").read_text())["trained"]
    by_name = {result.metric_name: result for result in results}
    for scorer in ("official", "strict"):
        row, result = rows[scorer]["overall"], by_name[f"partial match, {scorer}"]
        assert result.metric_value == round(row["partial_match"], 2)
        interval = row["intervals"]["partial_match"]
        assert result.metric_args == (interval and {"interval_95": [round(end, 2) for end in interval]})
    assert "    vlm-agent evaluate --checkpoint run --shards test --split test --output OUT\n" in card
    assert all(f"| {name} |" in card for name in ("this model", "grey screens", "no history", "blind ceiling"))
    assert sha256_of(trained(run).files) == digest
    assert main(["train", "--config", str(RECIPE), *keys]) == OK  # finished: nothing changes
    assert (run / "README.md").read_text() == card


FACT = "scored episodes that the run was trained on"


def test_training_episodes_among_the_scored_ones_are_counted_wherever_scores_are_shown(world, tmp_path, capsys):
    folder, _ = world
    fresh = tiny.write_shards(tmp_path / "fresh", [tiny.episode(number) for number in (2, 7, 8)], split="test")
    words = ["evaluate", "--checkpoint", str(folder / "run"), "--shards", str(fresh), "--output", str(tmp_path / "out")]
    assert main([*words, "--controls", "none"]) == OK
    assert f"{FACT}: 1 of 3" in capsys.readouterr().out
    about = {run: row["about"] for run, row in json.loads((tmp_path / "out/metrics.json").read_text()).items()
             if run != "checksum"}  # fmt: skip
    assert about["trained"]["trained_on"] == {"count": 1, "first": [tiny.episode(2).id]}
    assert "trained_on" not in about["blind_ceiling"]
    assert f"<dt>{FACT}</dt><dd>1 of 3</dd>" in (tmp_path / "out/report.html").read_text()
    assert main(["card", str(folder / "run"), "--scores", str(tmp_path / "out"), str(folder / "out")]) == OK
    card = (folder / "run" / "README.md").read_text()
    assert f"3 of 3 episodes of split test; {FACT}: 1 of 3" in card
    assert f"2 of 2 episodes of split test; {FACT}: 2 of 2" in card
    assert main(["evaluate", "--finish", "--output", str(tmp_path / "out")]) == OK
    assert f"{FACT}: 1 of 3" in capsys.readouterr().out


def test_without_a_record_of_its_episodes_it_is_unknown_what_a_run_was_trained_on(tmp_path, capsys):
    run = adapted_run.write_run(tmp_path)
    words = ["evaluate", "--checkpoint", str(run), "--shards", str(tmp_path / "shards"), "--split", "train"]
    assert main([*words, "--output", str(tmp_path / "out"), "--controls", "none"]) == OK
    assert f"{FACT}: unknown: the run has no episodes.parquet" in " ".join(capsys.readouterr().out.split())
    assert "count" not in json.loads((tmp_path / "out/metrics.json").read_text())["trained"]["about"]["trained_on"]


def test_scores_of_another_model_and_unfinished_ones_are_refused(world, tmp_path, capsys):
    folder, _ = world
    other = adapted_run.write_run(tmp_path)
    assert main(["card", str(other), "--scores", str(folder / "out")]) == FAILED
    assert "evaluated another model" in capsys.readouterr().err
    (tmp_path / "none").mkdir()
    assert main(["card", str(folder / "run"), "--scores", str(tmp_path / "none")]) == FAILED
    assert "does not hold an evaluation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("metrics.json", content) for content in ({}, {"trained": {"about": []}}, {"trained": 7}, [1])),
        *(("plan.json", content) for content in ({"described": {"agent": {}}}, {"described": [], "given": {}})),
    ],
)
def test_files_of_another_shape_are_refused_with_their_name(world, tmp_path, capsys, name, content):
    folder, _ = world
    out = shutil.copytree(folder / "out", tmp_path / "out")
    (out / name).write_text(json.dumps(content))
    capsys.readouterr()
    assert main(["card", str(folder / "run"), "--scores", str(out)]) == FAILED
    error = capsys.readouterr().err
    assert str(out / name) in error and "damaged" in error
    assert "run the same evaluate command again" in error or "start again" in error
    assert len(error.strip().splitlines()) == 1


def test_an_online_file_of_another_shape_is_refused_with_its_name(world, tmp_path, capsys):
    folder, _ = world
    for content in ({}, {"about": {}, "runs": {}}, {"about": {"agent": None}, "runs": {}}, []):
        (tmp_path / "online.json").write_text(json.dumps(content))
        capsys.readouterr()
        assert main(["card", str(folder / "run"), "--scores", str(tmp_path)]) == FAILED
        error = capsys.readouterr().err
        assert f"{tmp_path / 'online.json'} is damaged" in error and "evaluate" in error


def test_a_merged_checkpoint_has_a_card_in_place_of_that_of_peft(tmp_path):
    run, merged = adapted_run.write_run(tmp_path), tmp_path / "merged"
    record_learned(run, ["a", tiny.episode(1).id], None)
    assert main(["merge", str(run), "--output", str(merged), "--samples", "1"]) == OK
    text = (merged / "model" / "README.md").read_text()
    assert (merged / "README.md").read_text() == text
    assert "# merged" in text
    assert "the adapter run |" in text
    assert ModelCard(text).data.model_name in (None, "merged")
    words = ["evaluate", "--checkpoint", str(merged), "--shards", str(tmp_path / "shards"), "--split", "train"]
    assert main([*words, "--output", str(tmp_path / "out"), "--controls", "none"]) == OK
    assert main(["card", str(merged), "--scores", str(tmp_path / "out")]) == OK
    card = ModelCard((merged / "README.md").read_text())
    assert card.data.model_name == "merged"
    assert f"{FACT}: 1 of 3" in card.text
    assert card.data.eval_results
