"""A fine-tuned model behind an endpoint is prompted with the turns of its training and scored like its checkpoint."""

import shutil
from dataclasses import replace

import pytest
import yaml
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.data.notes import ALL, with_texts
from helpers.data.references import TwoReferences
from helpers.runs import served_qwen
from helpers.runs.adapted_run import write_run as write_llama_run
from safetensors.torch import load_file, save_file

from vlm_agent.agents import demonstrated
from vlm_agent.agents.as_trained import trained_messages
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.agents.endpoint import EndpointSettings
from vlm_agent.agents.loading import AgentError, agent_settings
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.episodes import Action, recorded_screen
from vlm_agent.errors import UserError
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.models.build import load_sentences
from vlm_agent.models.run_layout import MODEL_FOLDER
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.sentences import SCREEN_TOKEN
from vlm_agent.sentences.notes import NO_REFERENCES

EPISODE = served_qwen.EPISODES[1]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run, with the merged checkpoint in the folder `merged` beside it."""
    return served_qwen.write_merged_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def server(run):
    return served_qwen.Server(run.parent / "merged" / MODEL_FOLDER)


def settings(run, **keys) -> EndpointSettings:
    return EndpointSettings(
        **{"endpoint": "http://localhost:1", "model": "mine", "as_trained": str(run), "calls": f"{run}_calls"} | keys
    )


def test_the_messages_are_the_turns_of_training(run):
    agent = settings(run).load()
    messages = agent.messages(EPISODE.goal, demonstrated(EPISODE, 2), EPISODE.steps[2].screen)
    assert [turn["role"] for turn in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert messages[0]["content"] == "You operate a phone by its screen, one action at a time."
    assert [part["type"] for part in messages[1]["content"]] == ["text", "image_url"]
    assert messages[1]["content"][0]["text"] == f"Goal: {EPISODE.goal}\n"
    assert [messages[at]["content"] for at in (2, 4)] == [tiny.LANGUAGE.encode(action) for action in tiny.ACTIONS[:2]]
    assert [part["type"] for part in messages[3]["content"]] == ["image_url"]


@pytest.mark.parametrize("references", [NO_REFERENCES, TwoReferences()], ids=["", "references"])
def test_with_texts_the_servers_prompt_has_the_tokens_of_training(run, server, references):
    episode = with_texts(EPISODE)
    sentences = replace(load_sentences(run, tiny.LANGUAGE, DataRecipe(notes=ALL)), references=references)
    image = server.model.config.image_token_id
    for number in range(len(episode)):
        history, screen = demonstrated(episode, number), recorded_screen(episode, number)
        messages = trained_messages(sentences, episode.goal, history, screen)
        theirs = server.inputs(messages)["input_ids"][0].tolist()
        ours = sentences.prompt(replace(episode, steps=episode.steps[: number + 1])).input_ids
        assert [SCREEN_TOKEN if id_ == image else id_ for id_ in theirs] == ours
        assert f"Screen: screen-{number}" in str(messages[-1]) and f"result-{number}" not in str(messages)
        assert str(messages).count("Similar: ") == len(references.lines(episode.goal, episode.id))


def test_an_answer_with_thoughts_is_split(run):
    sentences = load_sentences(run, tiny.LANGUAGE, DataRecipe(notes=ALL))
    with serving(lambda n, body: Reply("it is here\ntap it\npress back")) as (url, requests):
        agent = replace(settings(run, endpoint=url).load(), sentences=sentences)
        answer = agent.act("go", [], EPISODE.steps[0].screen)
    assert answer.action == Action.press("back")
    assert answer.notes == {"think": "it is here", "action": "tap it"}
    assert "Screen: " in str(requests[0].body["messages"])


def test_evaluate_scores_the_served_model_as_the_checkpoint(run, server, tmp_path, capsys):
    where = ["--shards", str(run.parent / "shards"), "--split", "train"]
    assert main(["evaluate", "--checkpoint", str(run), *where, "--output", str(tmp_path / "local")]) == OK
    with served_qwen.served(server) as (url, requests):
        options = ["--endpoint", url, "--agent.model", "mine", "--agent.as_trained", str(run)]
        assert main(["evaluate", *options, *where, "--output", str(tmp_path / "served")]) == OK
    # The first step of an episode has no history, so the control without it sends the same request, read from disk.
    expected = 3 * sum(map(len, served_qwen.EPISODES)) - len(served_qwen.EPISODES)
    assert len(requests) == expected, capsys.readouterr()
    local, remote = (read_predictions(tmp_path / name / "predictions.parquet") for name in ("local", "served"))
    assert [row.text for row in local] == [row.text for row in remote]


def test_checkpoints_served_under_one_name_share_no_reply_in_a_folder_of_calls(run, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    (adapter,) = other.glob("model/*.safetensors")
    save_file({name: weight + 1 for name, weight in load_file(adapter).items()}, adapter)
    texts = {run: "complete", other: "impossible"}
    for checkpoint, text in texts.items():
        with serving(lambda number, body, text=text: Reply(text)) as (url, _):
            agent = settings(checkpoint, endpoint=url, calls=str(tmp_path / "calls")).load()
            assert agent.act(EPISODE.goal, [], EPISODE.steps[0].screen).text == text
    for checkpoint, text in texts.items():  # on the second time from disk
        agent = settings(checkpoint, calls=str(tmp_path / "calls")).load()
        assert agent.act(EPISODE.goal, [], EPISODE.steps[0].screen).text == text


def test_settings_of_the_run_cannot_be_overridden(run, tmp_path, capsys):
    for key, value in {"past_screens": 2, "max_tokens": 9, "action_language": {"bins": 5}}.items():
        with pytest.raises(AgentError, match=f"remove {key}; with as_trained it is that of the run"):
            agent_settings(
                endpoint="http://localhost:1", overrides={"model": "mine", "as_trained": str(run), key: value}
            )
    with pytest.raises(AgentError, match="unknown key as_trained"):
        agent_settings(checkpoint=str(run), overrides={"as_trained": str(run)})
    missing = [
        "--endpoint",
        "http://localhost:1",
        "--agent.model",
        "mine",
        "--agent.as_trained",
        str(tmp_path / "none"),
    ]
    assert (
        main(
            [
                "evaluate",
                *missing,
                "--shards",
                str(run.parent / "shards"),
                "--split",
                "train",
                "--output",
                str(tmp_path),
            ]
        )
        == FAILED
    )
    assert "no model" in capsys.readouterr().err


def test_language_and_identity_are_those_of_the_run(run):
    assert settings(run).language.build() == tiny.LANGUAGE
    assert settings(run).identity() != settings(run.parent / "merged").identity()
    assert settings(run).identity() == settings(run, endpoint="http://localhost:2", concurrency=1).identity()


def test_the_control_of_the_training_is_applied(run, tmp_path):

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    content = yaml.safe_load((copy / "recipe.yaml").read_text())
    content["data"]["control"] = "grey_screens"
    (copy / "recipe.yaml").write_text(yaml.safe_dump(content))
    agent = settings(copy).load()
    assert isinstance(agent, ControlledAgent)
    assert agent.control == CONTROLS["grey_screens"]


def test_a_model_without_chat_turns_is_an_error(tmp_path):
    run = write_llama_run(tmp_path)
    with serving(lambda n, body: Reply("complete")) as (url, requests):
        agent = settings(run, endpoint=url).load()
        with pytest.raises(UserError, match="was not trained on chat turns"):
            agent.act(EPISODE.goal, (), EPISODE.steps[0].screen)
    assert not requests
