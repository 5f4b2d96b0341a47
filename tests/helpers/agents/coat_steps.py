"""Steps that the prompting agent of CoAT answers, by a model behind a real server."""

import base64
from dataclasses import replace

import numpy as np
from helpers import tiny
from helpers.agents.chat_server import Reply, serving

from vlm_agent.agents import Answer, demonstrated
from vlm_agent.agents.coat import CoatAgentSettings
from vlm_agent.agents.coat.agent import CoatAgent
from vlm_agent.datasets.shards.schema import decode_screen
from vlm_agent.episodes import recorded_screen

PLAIN = tiny.episode(1)
WITH_TEXTS = replace(
    PLAIN,
    steps=tuple(
        replace(
            step,
            notes={"screen": f"screen {n}", "think": f"thought {n}", "action": f"action {n}", "result": f"result {n}"},
        )
        for n, step in enumerate(PLAIN.steps)
    ),
)
"""The same episode with recorded texts."""

CALL = '{"THINK": "the cart\\nis full", "NEXT": "click on Clear cart", "ACTION": "click_element", "ARGS": {"idx": 1}}'
FILE = "agent: coat\nendpoint: {url}\nmodel: vlm\nmode: cot\nattempts: 1\nconcurrency: 2\n"


def agent(url: str, folder, **options) -> CoatAgent:
    settings = {"endpoint": url, "model": "vlm", "calls": str(folder), "attempts": 1} | options
    return CoatAgentSettings(**settings).load()


def asked(tmp_path, episode=PLAIN, number: int = 3, reply: str = CALL, **options) -> tuple[list[list[dict]], Answer]:
    """The messages of all calls of one step, and its answer."""
    with serving(lambda n, body: Reply(reply)) as (url, requests):
        answer = agent(url, tmp_path / "calls", **options).act(
            episode.goal, demonstrated(episode, number), recorded_screen(episode, number)
        )
    return [call.body["messages"] for call in requests], answer


def text_of(messages: list[dict]) -> str:
    return messages[-1]["content"][0]["text"]


def pictures_of(messages: list[dict]) -> list[np.ndarray]:
    urls = [part["image_url"]["url"] for part in messages[-1]["content"][1:]]
    return [decode_screen(base64.b64decode(url.partition(",")[2])) for url in urls]
