"""A model that answers the calls of the planning agent, and the agent that asks it."""

import base64
from collections import Counter

import numpy as np
from helpers import tiny
from helpers.agents.chat_server import Reply, serving

from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.agents.dynamic_planning.agent import DynamicPlanningAgent
from vlm_agent.datasets.shards.schema import decode_screen
from vlm_agent.sentences.html import screen_html

EPISODE = tiny.episode(1)
HTML = screen_html(EPISODE.steps[0].screen).strip()
CLICK, HOME = '{"action_type": "click", "idx": 1}', '{"action_type": "navigate_home"}'
FILE = "agent: dynamic_planning\nendpoint: {url}\nmodel: vlm\nattempts: 1\nconcurrency: 2\n"
"""An agent file."""

QUESTIONS = {
    "What is the plan?": "plan",
    "What is the plan, and what is to be done now?": "plan_and_step",
    "What is to be done next?": "description",
    "Which action is it?": "action",
    "Is it right?": "verdict",
}


def text_of(message: dict) -> str:
    content = message["content"]
    return content if isinstance(content, str) else content[0]["text"]


def pictures_of(message: dict) -> list[np.ndarray]:
    content = message["content"]
    urls = [] if isinstance(content, str) else [part["image_url"]["url"] for part in content[1:]]
    return [decode_screen(base64.b64decode(url.partition(",")[2])) for url in urls]


def kind_of(messages: list[dict]) -> str:
    """Which call it is, by its last question; a question that is asked again keeps its kind."""
    questions = [text_of(message).rpartition("\n\n")[2] for message in messages if message["role"] == "user"]
    return next(QUESTIONS[question] for question in reversed(questions) if question in QUESTIONS)


def paragraphs(messages: list[dict]) -> list[str]:
    return text_of(messages[-1]).split("\n\n")


class Model:
    """Answers call number n of each kind with a text that names n, and keeps all messages."""

    def __init__(self, **replies: list[str]) -> None:
        self.replies, self.asked, self.counts = replies, [], Counter()

    def __call__(self, number: int, body: dict) -> Reply:
        kind = kind_of(body["messages"])
        self.asked.append((kind, body["messages"]))
        n = self.counts[kind]
        self.counts[kind] += 1
        own = {
            "plan": f'{{"plan": "1. first {n}\\n2. second {n}"}}',
            "plan_and_step": f'{{"plan": "1. first {n}\\n2. second {n}", "step": "step {n}"}}',
            "description": f"It is a shop.\nClick {n}",
            "action": f"Thought: thought {n}\nAction: {CLICK}"
            if "Thought:" in body["messages"][0]["content"]
            else CLICK,
            "verdict": f'{{"right": false, "reason": "Because {n}."}}',
        }
        listed = self.replies.get(kind)
        return Reply(own[kind] if listed is None else listed[min(n, len(listed) - 1)])

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.asked]

    def of(self, kind: str) -> list[list[dict]]:
        return [messages for one, messages in self.asked if one == kind]


def agent(url: str, folder, **options) -> DynamicPlanningAgent:
    settings = {"endpoint": url, "model": "vlm", "calls": str(folder), "attempts": 1, "concurrency": 1} | options
    return DynamicPlanningSettings(**settings).load()


def planned(tmp_path, mode: str, model: Model | None = None, episodes=(EPISODE,), **options):
    """(the model, the answers) of recorded episodes."""
    model = Model() if model is None else model
    with serving(model) as (url, _):
        answers = agent(url, tmp_path / "calls", mode=mode, **options).answer_episodes(episodes)
    return model, answers[0] if len(episodes) == 1 else answers
