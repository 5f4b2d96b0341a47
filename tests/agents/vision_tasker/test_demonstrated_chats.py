"""Chats for training in which a share of episodes has the nearest demonstration in its prompts."""

import pytest
from helpers import tiny

from vlm_agent.agents.examples.store import Demonstrations
from vlm_agent.agents.vision_tasker import VisionTaskerSettings
from vlm_agent.cli import OK, main

EPISODES = [tiny.episode(number) for number in range(40)]
LINE = "1. tap 'Kitchen'"


@pytest.fixture
def settings(tmp_path):
    """Settings with further keys, whose store has one demonstration."""
    store = Demonstrations(tmp_path / "shown.sqlite")
    store.add("Boil an egg", "", ["tap 'Kitchen'"])
    base = {"endpoint": "http://a:1", "model": "m", "screen": "html", "calls": str(tmp_path / "calls")}
    return lambda **keys: VisionTaskerSettings(**base, **keys)


@pytest.fixture
def store(tmp_path):
    return {"demonstrations": str(tmp_path / "shown.sqlite")}


def by_episode(settings, episodes=EPISODES) -> list[list]:
    return [list(settings.chats([episode])) for episode in episodes]


def has_line(chats) -> list[bool]:
    return [LINE in message["content"] for messages in chats for message in messages if message["role"] == "user"]


def test_without_the_share_a_store_changes_no_chat(settings, store):
    assert by_episode(settings(**store)) == by_episode(settings())
    assert by_episode(settings(**store, demonstrated_chats=0.0)) == by_episode(settings())


def test_all_prompts_of_an_episode_have_the_demonstration_or_none(settings, store):
    found = [has_line(chats) for chats in by_episode(settings(**store, demonstrated_chats=0.5))]
    assert all(found) and all(len(set(of_episode)) == 1 for of_episode in found)
    chosen = sum(of_episode[0] for of_episode in found)
    assert 10 < chosen < 30
    assert all(all(has_line(chats)) for chats in by_episode(settings(**store, demonstrated_chats=1.0)))


def test_the_demonstration_is_all_that_a_chosen_prompt_has_beside_the_others(settings, store):
    plain, shown = (by_episode(settings(**keys)) for keys in ({}, store | {"demonstrated_chats": 0.5}))
    unchanged = [without == having for without, having in zip(plain, shown, strict=True)]
    assert unchanged == [not any(has_line(chats)) for chats in shown]
    replies = [[messages[-1] for chats in all_chats for messages in chats] for all_chats in (plain, shown)]
    assert replies[0] == replies[1]


def test_an_episode_is_chosen_whatever_is_read_beside_it(settings, store):
    half = settings(**store, demonstrated_chats=0.5)
    assert [chat for chats in by_episode(half, EPISODES[::-1])[::-1] for chat in chats] == list(half.chats(EPISODES))


def test_a_share_needs_a_store_and_is_at_most_1(settings, store):
    with pytest.raises(ValueError, match="demonstrated_chats is for demonstrations"):
        settings(demonstrated_chats=0.5)
    with pytest.raises(ValueError, match="less than or equal to 1"):
        settings(**store, demonstrated_chats=1.5)


def test_the_command_writes_demonstrations_of_the_agent_file(tmp_path, settings, store):
    shards = tiny.write_shards(tmp_path / "shards", EPISODES[:2])
    agent, output = tmp_path / "agent.yaml", tmp_path / "chats.jsonl"
    keys = {"agent": "vision_tasker", "endpoint": "http://a:1", "model": "m", "screen": "html"}
    keys |= store | {"demonstrated_chats": 1, "calls": str(tmp_path / "calls")}
    agent.write_text("".join(f"{name}: {value}\n" for name, value in keys.items()), encoding="utf-8")
    assert main(["chats", str(shards), "--agent", str(agent), "--output", str(output)]) == OK
    lines = output.read_text(encoding="utf-8").splitlines()
    assert lines and all(LINE in line for line in lines)
