"""Auto-UI end to end: features, training, evaluation, merging."""

import io
from pathlib import Path

import pytest
import yaml
from helpers import tiny
from helpers.runs import chain_runs
from rich.console import Console

from vlm_agent.agents import answer_step_by_step
from vlm_agent.agents.auto_ui import AutoUiSettings
from vlm_agent.agents.auto_ui.agent import AutoUiAgent
from vlm_agent.cli import OK, main
from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.offline.run import AGENT, evaluate
from vlm_agent.evaluation.predictions import read_predictions

WIDER = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4}


def train(content: dict, folder: Path) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    assert main(["train", "--config", str(path)]) == OK
    return Path(content["output"])


@pytest.mark.parametrize("past_screens", [0, 1])
def test_the_real_episode_is_learned_and_answered_4_of_4(shared, tmp_path, past_screens):
    """With the official and the strict score, from stored and from computed features."""
    shards = tmp_path / "shards"
    convert("aitw", [shared / "data/aitw_tfrecord"], shards, console=Console(file=io.StringIO()))
    features = chain_runs.write_features(shards, tmp_path / "features", "patches")
    content = chain_runs.recipe(shards, features, tmp_path / "run", "patches", past_screens=past_screens)
    content["model"]["encoder_decoder"] = {"config": chain_runs.T5 | WIDER}
    content["training"] |= {"steps": 80, "batch_size": 4, "optimizer": {"name": "adamw", "learning_rate": 3e-3}}
    run = train(content, tmp_path)
    agent, episodes = AutoUiAgent.from_run(run), episodes_of(shards)
    (answers,) = agent.answer_episodes(episodes)
    assert [answers] == answer_step_by_step(agent, episodes)
    plans = [tuple(answer.notes["plan"].split("\n")) for answer in answers]
    kinds = ("PRESS_HOME", "DUAL_POINT", "DUAL_POINT", "STATUS_TASK_COMPLETE")
    assert plans == [kinds[number:] for number in range(4)]
    for stored in (None, str(features)):
        settings, output = AutoUiSettings(run=str(run), features=stored), tmp_path / f"scores_{stored is None}"
        benchmark = Benchmark(shards=shards, split="train")
        scores = evaluate(settings, benchmark, output, Console(file=io.StringIO()), controls=False)[AGENT]
        assert scores["official"]["google_apps"]["steps"] == 4
        assert scores["official"]["google_apps"]["partial_match"] == 100
        assert scores["strict"]["google_apps"]["partial_match"] == 100


def episodes_of(shards: Path) -> list:
    dataset = ShardDataset(shards, split="train")
    return [dataset[index] for index in range(len(dataset))]


def test_an_adapter_is_merged_and_the_merged_checkpoint_has_its_answers(tmp_path, capsys):
    shards = tiny.write_shards(tmp_path / "shards", chain_runs.episodes())
    features = chain_runs.write_features(shards, tmp_path / "features")
    content = chain_runs.recipe(shards, features, tmp_path / "run", max_target_tokens=64)
    content["model"] |= {
        "train": {"language_model": "lora", "embeddings": "frozen", "head": "frozen", "norm": "frozen"}
    }
    run, merged = train(content, tmp_path), tmp_path / "merged"
    assert main(["merge", str(run), "--output", str(merged), "--samples", "2"]) == OK
    assert "2 episodes, " in capsys.readouterr().out
    texts = []
    for folder in (run, merged):
        output = tmp_path / f"scores_of_{folder.name}"
        where = ["--shards", str(shards), "--split", "train", "--agent.features", str(features), "--controls", "none"]
        assert main(["evaluate", "--checkpoint", str(folder), *where, "--output", str(output)]) == OK
        texts.append([row.text for row in read_predictions(output / "predictions.parquet")])
    assert texts[0] == texts[1]
