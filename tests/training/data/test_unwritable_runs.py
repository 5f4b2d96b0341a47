"""A run over actions that its tokenizer cannot write trains on the others, and counts and lists them."""

import json
from io import StringIO

import pytest
from helpers import tiny
from rich.console import Console
from tokenizers import normalizers

from vlm_agent.episodes import Action
from vlm_agent.errors import RecipeError
from vlm_agent.models.build import build_tokenizer
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data import data_module
from vlm_agent.training.data.shard_data import ShardDataModule
from vlm_agent.training.dry_run.hardware import find_gpu
from vlm_agent.training.dry_run.report import Target, dry_run, print_dry_run
from vlm_agent.training.train import train

LOUD = Action.type_text("LOUD")
EPISODES = [
    tiny.episode(0),
    tiny.episode(1, (LOUD, LOUD)),
    tiny.episode(2, (Action.tap(0.5, 0.5), LOUD, Action.complete())),
]
LINE = "episode 2 step 1: type 'LOUD'"


@pytest.fixture(autouse=True)
def lower_case(monkeypatch):
    """The recipe's tokenizer, which writes LOUD as loud."""

    def changed(*arguments):
        tokenizer = build_tokenizer(*arguments)
        tokenizer.backend_tokenizer.normalizer = normalizers.Replace("LOUD", "loud")
        return tokenizer

    monkeypatch.setattr(data_module, "build_tokenizer", changed)


def recipe(folder, episodes=EPISODES) -> Recipe:
    content = tiny.recipe(tiny.write_shards(folder / "shards", episodes), folder / "run")
    content["training"] |= {"steps": 1, "optimizer": {"name": "adamw", "learning_rate": 1e-3}}
    return Recipe(**content)


def test_a_run_counts_and_lists_them_at_its_start_and_in_its_record(tmp_path):
    console = Console(width=120, file=(printed := StringIO()))
    run = train(recipe(tmp_path), console)
    assert (
        "3 actions that this tokenizer cannot write are read, and not learned:\n  episode 1 step 0"
        in printed.getvalue()
    )
    assert LINE in printed.getvalue()
    unwritable = json.loads((run / "run.json").read_text())["figures"]["unwritable_actions"]
    assert (unwritable["count"], unwritable["first"][-1]) == (3, LINE)


def test_a_dry_run_counts_and_lists_them(tmp_path):
    content = recipe(tmp_path).model_dump(mode="json")
    content["model"]["element_loss"], content["training"]["bf16"] = 0.0, True
    dry = dry_run(ShardDataModule(Recipe(**content)), Target(find_gpu("H100"), 1, 0.4))
    console = Console(width=120, file=(printed := StringIO()))
    print_dry_run(console, dry)
    assert dry.reads.actions == len(tiny.ACTIONS) + 2
    assert LINE in printed.getvalue()


def test_a_sentence_without_a_writable_action_is_in_no_row(tmp_path):
    assert [item.episode for item in ShardDataModule(recipe(tmp_path)).order.items] == [0, 2]


def test_a_tokenizer_that_can_write_no_action_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="can write none of the actions"):
        ShardDataModule(recipe(tmp_path, EPISODES[1:2])).order  # noqa: B018
