"""A small comparison: two trained agents, and one that prompts a model which the comparison makes and serves."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from helpers import tiny
from helpers.slurm.workplace import REPOSITORY

SIZES = {"simulated": 30, "episodes": 2, "tasks": 1, "chats": 2}


def trained(folder: Path) -> dict[str, Any]:
    """Two agents of one recipe, which is written to the folder."""
    recipe = folder / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tiny.recipe(folder / "unused", folder / "unused_run")))
    return {
        "one": {"name": "<b>One</b>", "recipe": str(recipe), "controls": ["grey_screens"]},
        "other": {"name": "Other", "recipe": str(recipe), "overrides": {"training.steps": 5}},
    }


def prompted(**overrides: Any) -> dict[str, Any]:
    """An agent that reads the pixels of larger screens: their lines alone, which takes milliseconds."""
    agent = str(REPOSITORY / "eval/agents/vision_tasker.yaml")
    readers = {"text": "none", "widgets": "edges"}
    overrides = {"concurrency": 1, "max_tokens": 16, "readers": readers} | overrides
    return {"asks": {"name": "Asks", "agent": agent, "served": True, "scale": 2, "overrides": overrides}}


def served(**overrides: Any) -> dict[str, Any]:
    """The section of the model that is served: three steps of training."""
    recipe = str(REPOSITORY / "recipes/comparison/text_chats_tiny.yaml")
    smallest = {"training.steps": 3, "training.batch_size": 1, "training.log_steps": 1}
    return {"recipe": recipe, "overrides": smallest | overrides}


def write(path: Path, agents: dict[str, Any], **sections: Any) -> Path:
    content = {
        "name": "Tiny <script>",
        "benchmark": str(REPOSITORY / "eval/simulated_phone.yaml"),
        "sizes": SIZES,
        "quick": SIZES,
        "agents": agents,
    }
    path.write_text(yaml.safe_dump(content | sections, sort_keys=False))
    return path


def table(output: Path) -> dict[str, Any]:
    """What `comparison.json` says about quality, in any order of the rows; costs differ from run to run."""
    content = json.loads((output / "comparison.json").read_text())
    rows = {
        (key, seed): {name: row[name] for name in ("figures", "intervals", "controls")}
        for key, about in content["agents"].items()
        for seed, row in about["rows"].items()
    }
    return {"rows": rows, **{name: content[name] for name in ("baselines", "pairs", "dividing")}}


def answers(output: Path) -> dict[str, list[dict[str, Any]]]:
    """By agent and seed, the texts of its answers to recorded steps. Agents as small as these have no
    answer right, so their figures alone would not show a difference."""
    columns = ("episode_id", "step", "text")
    files = sorted((output / "offline").glob("*/predictions.parquet"))
    return {path.parent.name: pq.read_table(path, columns=list(columns)).to_pylist() for path in files}


def ends(output: Path) -> dict[str, list[int]]:
    """The statuses with which each stage has ended, in order."""
    files = sorted((output / "stages").glob("*.jsonl"))
    lines = {path.stem: map(json.loads, path.read_text().splitlines()) for path in files}
    return {name: [line["status"] for line in found if "status" in line] for name, found in lines.items()}
