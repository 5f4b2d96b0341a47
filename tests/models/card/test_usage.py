"""A model card is enough to use the model: its snippet, run where this package is absent, writes our agent's tokens."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import tiny
from helpers.models import tiny_qwen, tiny_text
from helpers.pages.card_snippets import run_snippets, snippet_of
from helpers.runs import served_qwen
from huggingface_hub import constants
from PIL import Image
from transformers import AutoProcessor, AutoTokenizer

from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.cli import FAILED, OK, USAGE, main
from vlm_agent.episodes import Screen
from vlm_agent.errors import CheckpointError
from vlm_agent.models.card.usage import example, how_to_use
from vlm_agent.models.run_layout import MODEL_FOLDER
from vlm_agent.recipe.run import Recipe, read_recipe

NAME, COMMIT = "someone/tiny-base", "1" * 40
GOAL = example(1).goal


def write_base(folder: Path, family: str) -> str:
    """A checkpoint in FOLDER/someone/tiny-base, the recipe's key of it."""
    if family in tiny_qwen.FAMILIES:
        recipe = tiny_qwen.recipe(family)
        words = tiny_qwen.tokenizer(recipe)
        model, key = tiny_qwen.model(recipe, words), "vlm"
    else:
        words = tiny_text.tokenizer()
        # Qwen2's tokenizer class adds a token of its own.
        model, key = tiny_text.model(words, family, vocab_size=len(words) + 1), "language_model"
    model.save_pretrained(folder / NAME)
    words.save_pretrained(folder / NAME)
    (folder / NAME / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    return key


def train(folder: Path, family: str, published: str | None = NAME) -> Path:
    """A run of five steps on a base of its own, which is at an absolute path, and its merged checkpoint."""
    key = write_base(folder, family)
    episodes = served_qwen.EPISODES if key == "vlm" else [tiny_text.episode(number) for number in range(3)]
    shards = tiny.write_shards(folder / "shards", episodes)
    content = tiny.recipe(shards, folder / "run")
    content["model"] = {
        key: {"checkpoint": str(folder / NAME)} | ({} if published is None else {"published_as": published}),
        "train": {"language_model": "lora"},
        "lora": {"rank": 2, "alpha": 16, "dropout": 0.0},
    }
    content["model"] |= {"min_pixels": 6 * 64, "max_pixels": 20 * 64} if key == "vlm" else {}
    content["training"] |= {"steps": 5, "optimizer": {"name": "adamw", "learning_rate": 0.03}}
    content["action_language"] = {"name": "binned"} if key == "vlm" else {"name": "element_index"}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    assert main(["train", "--config", str(folder / "recipe.yaml")]) == OK
    return folder / "run"


def place_screenshot(*folders: Path) -> Screen:
    pixels = np.random.default_rng(5).integers(0, 256, (75, 44, 3), np.uint8)
    for folder in folders:
        Image.fromarray(pixels).save(folder / "screenshot.png")
    return Screen(pixels, example(1).steps[0].elements)


def answers_equal(runs: list[Path]) -> None:
    """For the adapter of each run and its merged checkpoint."""
    folders = []
    for run in runs:
        merged = run.with_name("merged")
        assert main(["merge", str(run), "--output", str(merged)]) == OK
        folders += [run / MODEL_FOLDER, merged / MODEL_FOLDER]
        (run / MODEL_FOLDER / "someone").symlink_to(run.parent / "someone")  # in place of the hub
    screen = place_screenshot(*folders)
    for folder, (ids, printed) in zip(folders, run_snippets(folders), strict=True):
        agent = VlmAgent.from_run(folder.parent)
        ours = agent.act(GOAL, (), screen)
        assert (len(ids), agent.sentences.text(ids)) == (ours.usage.tokens[1], ours.text), folder
        assert printed == ours.text


@pytest.fixture(scope="module")
def vision(tmp_path_factory):
    return train(tmp_path_factory.mktemp("vision"), "qwen2_5_vl")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return train(tmp_path_factory.mktemp("text"), "llama")


def test_the_snippets_of_adapter_and_merged_checkpoint_write_our_agents_tokens(vision, text):
    answers_equal([vision, text])


@pytest.mark.slow
def test_the_snippets_of_every_other_family_do(tmp_path):
    families = ["qwen2_vl", "qwen3_vl", "mistral", "qwen2", "qwen3"]
    answers_equal([train(tmp_path / family, family) for family in families])


def test_an_adapter_folder_has_processor_and_template(vision, text):
    processor = AutoProcessor.from_pretrained(vision / MODEL_FOLDER)
    assert processor.image_processor.size["longest_edge"] == 20 * 64
    assert "<|im_start|>" in processor.chat_template
    assert "Action:" in AutoTokenizer.from_pretrained(text / MODEL_FOLDER).chat_template


def test_the_card_states_turns_language_and_base(vision):
    card = (vision / "README.md").read_text()
    assert "You operate a phone by its screen, one action at a time." in card
    assert "Y and X are whole numbers from 0 to 99: Y from the top" in card
    assert '# for example "tap at 14 30"' in card
    assert "All earlier screens and answers of the task stay in the conversation." in card
    metadata = yaml.safe_load(card.split("---\n")[1])
    assert metadata["base_model"] == [NAME]
    assert (metadata["library_name"], metadata["license"]) == ("peft", "apache-2.0")
    assert len(snippet_of(vision).strip().splitlines()) <= 24


@pytest.mark.parametrize(
    ("keys", "stated"),
    [
        ({"action_language": {"name": "binned", "bins": 50}}, ["from 0 to 49", '"tap at 7 15"']),
        ({"action_language": {"name": "coat"}}, ["CLICK(0.140, 0.300)", "SCROLL(direction)"]),
        ({"action_language": {"name": "named"}}, ["Devices=tap at 14 30"]),
        ({"data": {"past_screens": 0}}, ["No earlier screen is shown with their answers, and all others", "Done:\\n"]),
        (
            {"data": {"notes": {"think": "learned"}, "missing_notes": "empty"}},
            ["a line each for think; its last line is the action"],
        ),
        (
            {"data": {"notes": {"result": "read"}, "missing_notes": "empty"}},
            ["This model needs vlm-agent, because its prompts have"],
        ),
    ],
)
def test_the_card_follows_the_recipe(vision, keys, stated):
    content = yaml.safe_load((vision / "recipe.yaml").read_text())
    (name, value), *_ = keys.items()
    content[name] = value if name == "action_language" else content[name] | value
    section = how_to_use(vision, Recipe(**content), "run", {})
    for words in stated:
        assert words in section


def test_a_family_of_our_own_names_the_command(tmp_path):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode()])
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(tiny.recipe(shards, tmp_path / "run")))
    assert main(["train", "--config", str(tmp_path / "recipe.yaml")]) == OK
    card = (tmp_path / "run" / "README.md").read_text()
    assert "This model needs vlm-agent, because transformers does not know its architecture, llama" in card
    assert "    vlm-agent act --checkpoint run --device DEVICE --goal GOAL\n" in card
    assert "```python" not in card


def texts_of(folder: Path) -> str:
    return "\n".join(path.read_bytes().decode("latin-1") for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_path_of_the_machine_is_in_the_uploaded_folder_and_it_is_a_run(vision, tmp_path, monkeypatch):
    merged, cached = tmp_path / "merged", tmp_path / "cache/models--someone--tiny-base"
    assert main(["merge", str(vision), "--output", str(merged)]) == OK
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cached.parent))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    shutil.copytree(vision.parent / NAME, cached / "snapshots" / COMMIT)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text(COMMIT)
    for run in (vision, merged):
        output = tmp_path / f"upload {run.name}"
        assert main(["card", str(run), "--license", "mit", "--upload", str(output)]) == OK
        assert str(vision.parent) not in texts_of(output)
        assert str(tmp_path) not in texts_of(output)
        assert str(vision.parent) not in texts_of(run / MODEL_FOLDER)
        assert yaml.safe_load((output / "README.md").read_text().split("---\n")[1])["license"] == "mit"
        recipe = yaml.safe_load((output / "recipe.yaml").read_text())
        assert recipe["model"]["vlm"] == {"checkpoint": NAME} | dict.fromkeys(
            ("revision", "published_as", "gguf_file", "config")
        )
        screen = place_screenshot()
        assert VlmAgent.from_run(output).act(GOAL, (), screen).text == VlmAgent.from_run(run).act(GOAL, (), screen).text
        (output / "recipe.yaml").write_text((output / "recipe.yaml").read_text() + "\n")
        with pytest.raises(CheckpointError, match=r"recipe\.yaml differs from the SHA-256"):
            VlmAgent.from_run(output)
    adapter = json.loads((tmp_path / "upload run" / MODEL_FOLDER / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == NAME


def test_a_local_base_without_a_name_is_refused_with_the_key_to_set(tmp_path, capsys):
    run = train(tmp_path, "qwen2_5_vl", published=None)
    card = (run / "README.md").read_text()
    assert 'from_pretrained("BASE"' in card
    assert "`BASE` stands for tiny-base, which was a folder where the model was trained." in card
    assert "base_model" not in card.split("---\n")[1]
    assert json.loads((run / MODEL_FOLDER / "adapter_config.json").read_text())["base_model_name_or_path"] == ""
    capsys.readouterr()
    assert main(["card", str(run), "--upload", str(tmp_path / "out")]) == FAILED
    error = capsys.readouterr().err
    assert "--model.vlm.published_as OWNER/NAME" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
    before = (run / "recipe.yaml").read_bytes()
    assert main(["card", str(run), "--model.vlm.published_as", NAME, "--upload", str(tmp_path / "out")]) == OK
    assert str(tmp_path) not in texts_of(tmp_path / "out")
    assert f'from_pretrained("{NAME}"' in (run / MODEL_FOLDER / "README.md").read_text()
    assert (run / "recipe.yaml").read_bytes() == before
    assert yaml.safe_load((run / "README.md").read_text().split("---\n")[1])["base_model"] == [NAME]


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ([], USAGE, "give --scores, --license"),
        (["--license", "My own!"], FAILED, "is no identifier of a licence"),
        (["--model.vlm.published_as", "/a/b"], FAILED, "is no name on the hub"),
        (["--model.vision.published_as", "a/b"], FAILED, "was not trained from a model.vision.checkpoint"),
    ],
)
def test_options_that_do_not_fit_change_nothing(vision, capsys, options, status, message):
    before = (vision / "README.md").read_bytes()
    try:
        found = main(["card", str(vision), *options])
    except SystemExit as exit_:
        found = exit_.code
    assert found == status
    assert message in capsys.readouterr().err
    assert (vision / "README.md").read_bytes() == before


def test_the_published_name_may_be_given_to_a_finished_run(vision, tmp_path):
    shutil.copytree(vision, tmp_path / "run")
    config = vision.parent / "recipe.yaml"
    assert main(["train", "--config", str(config), "--model.vlm.published_as", "other/name"]) == OK


@pytest.mark.parametrize(
    ("file", "kind", "words"),
    [
        ("llava_7b_html.yaml", "llava", "This model needs vlm-agent, because its prompts are no chat turns"),
        ("comparison/text_chats_tiny.yaml", "llama", "Plain transformers and any server load this model."),
    ],
)
def test_a_card_promises_what_the_folder_has(monkeypatch, tmp_path, file, kind, words):
    monkeypatch.setattr("vlm_agent.models.card.usage.model_type", lambda *_: kind)
    assert words in how_to_use(tmp_path, read_recipe(Path(__file__).parents[3] / "recipes" / file), "name", {})
