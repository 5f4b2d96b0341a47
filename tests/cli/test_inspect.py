"""`vlm-agent inspect --html`: its page, its counts, and the options that it refuses."""

from pathlib import Path

import pytest
import yaml
from helpers import tiny

from vlm_agent.cli import FAILED, OK, USAGE, main
from vlm_agent.datasets.shards.dataset import ShardDataset


@pytest.fixture
def shards(tmp_path):
    return tiny.write_shards(tmp_path / "shards", [tiny.episode(number) for number in range(3)])


@pytest.fixture
def recipe(shards, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny.recipe(Path("elsewhere"), tmp_path / "run")), encoding="utf-8")
    return path


def test_a_page_is_written_to_the_requested_file(shards, tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    assert main(["inspect", str(shards), "--html", str(page)]) == OK
    assert f"Wrote {page}" in capsys.readouterr().out.replace("\n", "")
    assert "3 episodes, 15 steps" in page.read_text(encoding="utf-8")


def test_a_missing_shard_is_named_instead_of_statistics_of_what_is_not_there(shards, capsys):
    shard = shards / ShardDataset(shards).manifest["files"][0]["shard"]
    shard.rename(shards / "elsewhere")
    assert main(["inspect", str(shards)]) == FAILED
    printed = capsys.readouterr()
    assert f"lacks 1 of 1 shards, {shard.relative_to(shards)} first" in printed.err
    assert not printed.out


def test_the_default_page_is_statistics_html_in_the_working_directory(shards, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", str(shards), "--split", "train", "--html"]) == OK
    assert "only split" in (tmp_path / "statistics.html").read_text(encoding="utf-8")


def test_tokens_are_counted_on_the_inspected_folder_and_not_on_the_recipes(shards, recipe, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["inspect", str(shards), "--config", str(recipe), "--budget", "10", "--html", str(page)]) == OK
    printed = capsys.readouterr().out
    assert "> 10" in printed
    assert "100.0" in printed
    assert "Budget:\n10 tokens" in page.read_text(encoding="utf-8")


def test_the_default_limit_is_the_models_context_and_is_called_so(shards, recipe, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["inspect", str(shards), "--config", str(recipe), "--html", str(page)]) == OK
    assert "> 2,048" in capsys.readouterr().out
    assert "Context length:\n2,048 tokens" in page.read_text(encoding="utf-8")
    assert "exceed the context length" in page.read_text(encoding="utf-8")
    assert "budget" not in page.read_text(encoding="utf-8").lower()


def test_a_shipped_recipe_is_found_in_any_folder(shards, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", str(shards), "--config", "recipes/llama_vit_tiny.yaml"]) == OK
    assert "llama_vit_tiny.yaml" in capsys.readouterr().out


def test_an_invalid_recipe_is_one_message(shards, tmp_path, capsys):
    assert main(["inspect", str(shards), "--config", str(tmp_path / "none.yaml")]) == FAILED
    assert "none.yaml cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "x", "--html", "page.htm"], "must end in .html"),
        (["inspect", "--html", "shards"], "must end in .html"),
        (["inspect", "x", "--budget", "100"], "add --config FILE"),
        (["inspect", "x", "--config", "r.yaml", "--budget", "0"], "'0': must be a whole number, 1 or greater"),
    ],
)
def test_invalid_options_are_refused(arguments, words, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == USAGE
    assert words in capsys.readouterr().err
