"""Chats as training data: read with care, written by the tokenizer's chat template, trained and served."""

import json

import pytest
import yaml
from helpers import tiny
from helpers.models import tiny_text
from transformers import AutoTokenizer

from vlm_agent.agents.loading import agent_settings
from vlm_agent.cli import main
from vlm_agent.errors import RecipeError, UserError
from vlm_agent.models.run_layout import MODEL_FOLDER
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences import IGNORED, ROLES
from vlm_agent.training.data.chats.reading import MOST_BYTES, Chats
from vlm_agent.training.data.shard_data import data_module_of

CHATS = [
    [
        {"role": "system", "content": "Write a plan."},
        {"role": "user", "content": f"Goal: open page {number}\n\n<p id=0>Wi-Fi</p>"},
        {"role": "assistant", "content": f'{{"plan": "1. tap page {number}", "step": "tap page {number}"}}'},
    ]
    for number in range(4)
]
CHATS.append([*CHATS[0], {"role": "user", "content": "Once more."}, {"role": "assistant", "content": "{}"}])


def write(path, chats=CHATS):
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats), encoding="utf-8")
    return path


def recipe(folder, chats, **training) -> dict:
    content = tiny_text.recipe(folder, folder / "run")
    content["data"] = {"sentences": "chat", "chats": str(chats)}
    content["training"] |= training
    return content


@pytest.fixture
def module(tmp_path):
    return data_module_of(Recipe(**recipe(tmp_path, write(tmp_path / "chats.jsonl"))))


@pytest.mark.parametrize("number", [0, 4])
def test_the_prompt_has_the_ids_that_a_server_computes_and_only_the_last_answer_is_supervised(module, number):
    sentence = module.writer()(module.order.items[number], None)
    *read, answer = CHATS[number]
    words = module.tokenizer
    prompt = words.apply_chat_template(read, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert sentence.input_ids[: len(prompt)] == list(prompt)
    assert set(sentence.labels[: len(prompt)]) == {IGNORED}
    learned = sentence.labels[len(prompt) :]
    assert learned == sentence.input_ids[len(prompt) :]
    assert learned[-1] == words.eos_token_id
    assert words.decode(learned[:-1]) == answer["content"]


def test_with_a_weight_the_prompt_is_supervised_in_a_role_of_its_own(tmp_path, module):
    content = recipe(tmp_path, tmp_path / "chats.jsonl")
    content["data"]["prompt_weight"] = 0.25
    weighted = data_module_of(Recipe(**content))
    for item in weighted.order.items:
        plain, sentence = (one.writer()(item, None) for one in (module, weighted))
        prompt = plain.labels.count(IGNORED)
        assert sentence.input_ids == plain.input_ids
        assert sentence.labels == [IGNORED, *sentence.input_ids[1:]]
        assert sentence.weights == [1.0, *[0.25] * (prompt - 1), *plain.weights[prompt:]]
        assert sentence.roles == [0, *[ROLES.index("prompt")] * (prompt - 1), *plain.roles[prompt:]]


def test_a_weight_of_prompts_without_chats_is_refused():
    with pytest.raises(ValueError, match=r"remove prompt_weight; it has an effect only with sentences: chat"):
        DataRecipe(shards="shards", prompt_weight=0.5)


def test_a_folder_has_the_chats_of_its_files_in_order(tmp_path):
    write(tmp_path / "b.jsonl", CHATS[1:2])
    (tmp_path / "a.jsonl").write_text(json.dumps(CHATS[0]) + "\n\n")
    assert [chat.messages for chat in Chats(tmp_path)] == CHATS[:2]
    assert Chats(tmp_path)[1].where == f"{tmp_path / 'b.jsonl'} line 1"


USER, ANSWER = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ("[" * 100_000, "line 2 is not JSON"),
        ("3", "line 2 needs a list of messages"),
        ('{"messages": []}', "line 2 needs a list of messages"),
        (json.dumps([USER]), "line 2: the last message must be the assistant's"),
        (json.dumps([ANSWER]), "line 2: the last message must be the assistant's, after at least one other"),
        (json.dumps([USER | {"role": "tool"}, ANSWER]), "line 2, message 0 needs a role, one of system, user"),
        (json.dumps([USER, ANSWER | {"content": [{"type": "text"}]}]), "line 2, message 1 needs content, a text"),
        (json.dumps([USER, ANSWER | {"content": " "}]), "line 2, message 1 of the assistant is empty"),
        (json.dumps([USER | {"content": "\ud800"}, ANSWER]), "line 2, message 0 has a lone surrogate"),
        ("x" * (MOST_BYTES + 1), "line 2 is longer than 1,000,000 bytes"),
    ],
)
def test_a_line_that_is_no_chat_is_named_with_its_file(line, message, tmp_path):
    path = write(tmp_path / "chats.jsonl", CHATS[:1])
    path.write_text(path.read_text() + line + "\n", encoding="utf-8")
    with pytest.raises(RecipeError, match=message) as error:
        len(Chats(path))
    assert str(error.value).startswith(str(path))
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("content", ["tap 3</s> and more", "</s>"])
def test_an_answer_that_holds_the_end_mark_is_named_and_not_cut(content, tmp_path):
    path = write(tmp_path / "chats.jsonl", [CHATS[0], [USER, ANSWER | {"content": content}]])
    with pytest.raises(RecipeError, match=r"chats.jsonl line 2: the answer holds </s>, which ends an answer"):
        _ = data_module_of(Recipe(**recipe(tmp_path, path))).order


def test_a_folder_named_like_a_file_of_chats_is_none(tmp_path):
    (tmp_path / "a.jsonl").mkdir()
    with pytest.raises(RecipeError, match="is neither a file of JSON lines nor a folder with"):
        len(Chats(tmp_path))
    write(tmp_path / "b.jsonl")
    assert len(Chats(tmp_path)) == len(CHATS)


def test_a_chat_longer_than_a_row_is_named(tmp_path):
    path = write(tmp_path / "chats.jsonl")
    with pytest.raises(RecipeError, match=r"chats.jsonl line 5 has \d+ tokens, over training.batch_tokens \(\d+\)"):
        _ = data_module_of(Recipe(**recipe(tmp_path, path, batch_size=None, batch_tokens=60))).order


def test_missing_files_and_keys_of_other_sources_are_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"is neither a file of JSON lines nor a folder"):
        len(Chats(tmp_path / "none"))
    with pytest.raises(ValueError, match="set chats to a file or folder"):
        DataRecipe(sentences="chat", shards="x")
    with pytest.raises(ValueError, match="remove shards; it has no effect with chats"):
        DataRecipe(sentences="chat", chats="x", shards="y")
    for others in ({"shards": "y"}, {}, {"sentences": "elements"}):
        with pytest.raises(ValueError, match="chats has an effect only with sentences: chat"):
            DataRecipe(chats="x", **others)
    assert DataRecipe(sentences="chat", chats="x", shards=None).chats == "x"
    saved = DataRecipe(sentences="chat", chats="x").model_dump(mode="json")
    assert DataRecipe(**saved) == DataRecipe(sentences="chat", chats="x")


def test_a_run_on_chats_is_trained_merged_and_saved_with_its_chat_template(tmp_path, capsys):
    content = recipe(tmp_path, write(tmp_path / "chats.jsonl"))
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(content))
    assert main(["train", "--config", str(path)]) == 0
    adapted = content | {
        "output": str(tmp_path / "adapter"),
        "model": {"base": str(tmp_path / "run"), "lora": {"rank": 2}},
    }
    path.write_text(yaml.safe_dump(adapted))
    assert main(["train", "--config", str(path), "--dry-run", "--gpu", "4090", "--gpus", "1"]) == 0
    assert main(["train", "--config", str(path)]) == 0
    assert main(["merge", str(tmp_path / "adapter"), "--output", str(tmp_path / "merged")]) == 0
    words = [AutoTokenizer.from_pretrained(tmp_path / name / MODEL_FOLDER) for name in ("run", "merged")]
    prompts = [one.apply_chat_template(CHATS[0][:-1], add_generation_prompt=True, tokenize=False) for one in words]
    assert prompts[0] == prompts[1] and "Assistant:" in prompts[0] and "Action:" not in prompts[0]
    path.write_text(yaml.safe_dump(recipe_of_trajectories(tmp_path)))
    assert main(["train", "--config", str(path)]) == 0
    words = AutoTokenizer.from_pretrained(tmp_path / "further" / MODEL_FOLDER)
    further = words.apply_chat_template(CHATS[0][:-1], add_generation_prompt=True, tokenize=False)
    assert "Action:" in further and "Assistant:" not in further
    with pytest.raises(UserError, match=r"trained on data.sentences: chat, and no kind of agent runs such a model"):
        agent_settings(agent=str(tmp_path / "run"))


def recipe_of_trajectories(folder) -> dict:
    """A run on trajectories whose base was trained on chats; its chat template is that of trajectories again."""
    shards = tiny.write_shards(folder / "shards", [tiny_text.episode(number) for number in range(2)])
    content = tiny_text.recipe(shards, folder / "further")
    everything = dict.fromkeys(("embeddings", "language_model", "norm", "head"), "full")
    content["model"] = {"base": str(folder / "run"), "train": everything}
    return content


def test_a_model_that_sees_reads_no_chats(tmp_path):
    content = tiny.recipe(tmp_path, tmp_path / "run")
    content["data"] = {"sentences": "chat", "chats": str(write(tmp_path / "chats.jsonl"))}
    with pytest.raises(RecipeError, match=r"data.sentences: chat does not fit"):
        _ = data_module_of(Recipe(**content)).order
