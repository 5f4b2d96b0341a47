"""The card of a model: metadata that the Hub accepts, texts that break neither it nor the Markdown, kept additions."""

import json

import pytest
import yaml
from helpers import tiny
from huggingface_hub import ModelCard

from vlm_agent.errors import CheckpointError
from vlm_agent.models.card.card import Scores, Share, licence_of_bases, update_card, write_card
from vlm_agent.models.card.usage import portable
from vlm_agent.recipe.run import Recipe

HOSTILE = "x'\"\n---\nlicense: mit\n---\n## Scores\n| a | <!-- b --> `c` : {d}\n- # \x1b[31m"


def record(**figures):
    return {
        "figures": {"steps": 5, "hardware": "device: CPU", "seconds": 2.0, "reads": "4 ep"} | figures,
        "versions": {"torch": "2"},
        "commit": None,
        "command": ["/home/ann/bin/vlm-agent", "train", "--config", "/home/ann/r.yaml", "--data.shards=/home/ann/s"],
        "manifest": {"source": "aitw"},
        "manifest_sha256": "ab" * 32,
    }


def scores(data="aitw standard", value=49.25):
    rows = [
        ("this model", [Share("partial match, official", value, [44.0, 54.5]), Share("tap", None, None)]),
        ("grey screens", [Share("partial match, official", 12.0, [8.0, 16.0]), Share("tap", 3.0, None)]),
    ]
    command = ["vlm-agent", "evaluate", "--shards", "/home/ann/shards"]
    return Scores(data, "test", "100 episodes of split test", "cd" * 32, rows, command)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").write_text(json.dumps({"model_type": "llama_vit"}))
    (tmp_path / "run" / "model" / "README.md").write_text("of peft")
    return tmp_path / "run"


def card_of(folder, sources=None, name="run", shards="shards", finished=None):
    recipe = Recipe(**tiny.recipe(shards, "/home/ann/runs/run"))
    write_card(folder, recipe, sources or {}, record() if finished is None else finished, name)
    text = (folder / "README.md").read_text()
    assert (folder / "model" / "README.md").read_text() == text
    return text


def front_matter(text):
    return yaml.safe_load(text.split("---\n")[1])


def test_it_has_base_data_training_and_command_and_no_folder_of_the_machine(folder):
    text = card_of(folder, {"base": {"checkpoint": "/home/ann/runs/old", "content": "12ef"}}, shards="/home/ann/shards")
    assert "| base | base: old, fingerprint 12ef |" in text
    assert "shards shards, converted from aitw, split train" in text
    assert "ab" * 32 in text
    assert "    vlm-agent train --config r.yaml --data.shards=s\n" in text
    assert "5 steps, muon" in text
    assert "None yet" in text
    assert "/home" not in text
    metadata = front_matter(text)
    assert metadata["library_name"] == "vlm-agent"
    assert not {"license", "base_model", "model-index"} & metadata.keys()


def test_the_embedded_base_has_the_digest_of_its_weights(folder):
    assert "phone\\_vlm\\_tiny, sha256 5650da5d" in card_of(
        folder, {"base": {"checkpoint": "phone_vlm_tiny", "content": "1"}}
    )


def test_a_base_on_the_hub_is_metadata_and_a_folder_is_not(folder):
    hub = {"vlm": {"checkpoint": "Qwen/Qwen2-VL-2B-Instruct", "commit": "895c"}}
    local = {"vision": {"checkpoint": "some/folder", "content": "12"}}
    (folder / "model" / "adapter_model.safetensors").touch()
    text = card_of(folder, hub | local)
    assert front_matter(text)["base_model"] == ["Qwen/Qwen2-VL-2B-Instruct"]
    assert front_matter(text)["library_name"] == "vlm-agent"  # peft does not know a Llama+ViT
    assert "at commit 895c" in text


def test_scores_are_a_table_and_results_that_the_hub_reads(folder):
    card_of(folder)
    update_card(folder, [scores()])
    text = (folder / "README.md").read_text()
    assert "| this model | 49.2 (44.0 – 54.5) | – |" in text
    assert "| grey screens | 12.0 (8.0 – 16.0) | 3.0 |" in text
    assert "    vlm-agent evaluate --shards shards\n" in text
    (result,) = ModelCard(text).data.eval_results
    assert (result.metric_value, result.metric_args) == (49.25, {"interval_95": [44.0, 54.5]})
    assert (result.dataset_type, result.dataset_name) == ("aitw-standard", "aitw standard")
    assert (result.dataset_split, result.dataset_revision) == ("test", "cd" * 32)
    assert "None yet" not in text


def test_scores_are_replaced_and_what_a_person_added_stays(folder):
    text = card_of(folder)
    added = text.replace("tags:", "license: apache-2.0\ntags:", 1).replace(
        "## Training", "## By me\n\nNo.\n\n## Training"
    )
    (folder / "README.md").write_text(added)
    update_card(folder, [scores(value=10.0), scores("other")])
    update_card(folder, [scores()])
    once = (folder / "README.md").read_bytes()
    update_card(folder, [scores()])
    assert (folder / "README.md").read_bytes() == once == (folder / "model" / "README.md").read_bytes()
    text = once.decode()
    assert front_matter(text)["license"] == "apache-2.0"
    assert "## By me\n\nNo.\n" in text
    assert text.count("### ") == text.count("## Scores") == 1
    assert "10.0" not in text
    assert len(ModelCard(text).data.eval_results) == 1


@pytest.mark.parametrize("hostile", [HOSTILE, HOSTILE.replace("\x1b", ""), "---\n" * 3, "- [", "!!python/name:os"])
def test_hostile_texts_break_neither_metadata_nor_tables_nor_code(folder, hostile):
    finished = record(reads=hostile) | {"command": ["vlm-agent", "train", "--config", hostile]}
    sources = {"vlm": {"checkpoint": hostile, "commit": hostile}}
    before = front_matter(card_of(folder))
    text = card_of(folder, sources, hostile, f"{hostile}/s", finished)
    assert front_matter(text).keys() == before.keys()
    update_card(folder, [scores(hostile)])
    update_card(folder, [scores(hostile)])
    text = (folder / "README.md").read_text()
    card = ModelCard(text)
    assert card.data.license is None
    assert len(card.data.eval_results) == 1
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## How to use", "## Scores", "## Training", "## Limitations"]
    assert "<!--" not in "".join(line for line in card.text.splitlines() if not line.startswith("    "))
    rows = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {3, 4}
    assert "\x1b" not in text


def test_a_missing_or_damaged_card_is_one_message(folder):
    with pytest.raises(CheckpointError, match=r"has no README\.md"):
        update_card(folder, [scores()])
    (folder / "README.md").write_text("---\nmodel-index: [\n---\n")
    with pytest.raises(CheckpointError, match="metadata cannot be read"):
        update_card(folder, [scores()])


HARD_TO_READ = [
    "license: mit\neval_results: 5",
    "eval_results: [5]",
    "model-index:\n- name: a\n  results:\n  - {task: {type: t}, dataset: {type: d, name: d}, metrics: [], source: 5}",
    "1: 2",
    "[",
]


@pytest.mark.parametrize("metadata", HARD_TO_READ)
def test_the_card_of_a_base_may_hold_anything(folder, tmp_path, metadata):
    base = tmp_path / "base"
    base.mkdir()
    (base / "README.md").write_text(f"---\n{metadata}\n---\n")
    assert licence_of_bases({"vlm": {"checkpoint": str(base), "commit": None}}) == {}


@pytest.mark.parametrize("metadata", HARD_TO_READ)
def test_scores_in_a_card_whose_metadata_someone_broke_are_written_or_one_line(folder, metadata):
    (folder / "README.md").write_text(f"---\n{metadata}\n---\n")
    try:
        update_card(folder, [scores()])
    except CheckpointError as error:
        assert "metadata cannot be read" in str(error) and "\n" not in str(error)
    else:
        assert "## Scores" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("value", "short"),
    [("/a/b", "b"), ("~/b", "b"), ("--key=/a/b", "--key=b"), ("a/b", "a/b"), ("1e-4", "1e-4"), (3, 3), (["/a"], ["a"])],
)
def test_absolute_paths_are_shortened(value, short):
    assert portable({"key": value}) == {"key": short}
