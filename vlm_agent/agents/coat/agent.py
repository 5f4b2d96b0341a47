"""A vision-language model that is prompted with a chain of actions, of thoughts, or of both (CoAT).

    coa     goal, screen, types of all actions so far                                     → ACTION, ARGS
    cot     goal, screen                                                                  → THINK, ACTION, ARGS
    coat    goal, screen, all actions so far in words, the last action's result, and a
            description of the screen                                                     → THINK, NEXT, ACTION, ARGS

The prompts are `prompts.yaml`. The answers are calls of the action language `coat`.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.action_texts import describe_action, touches_element
from vlm_agent.agents.agent import Answer, Turn, Usage, answer_step_by_step
from vlm_agent.agents.coat.elements import listed, numbered, with_rows
from vlm_agent.agents.coat.prompts import Click, Mode, Prompts, system, user
from vlm_agent.agents.llm.calls import Calls
from vlm_agent.agents.llm.client import CallError, Completion
from vlm_agent.agents.llm.cost import BYTES_PER_TOKEN, Expense, estimated_tokens
from vlm_agent.episodes import Action, CoatTexts, Episode, Screen, element_at
from vlm_agent.errors import UserError
from vlm_agent.sentences.thoughts import known_texts

TEXT_TOKENS = 256
"""Limit of a description or result that the model is asked for."""

REPLY_TOKENS: dict[Mode, int] = {"coa": 25, "cot": 90, "coat": 105}
DESCRIPTION_TOKENS, RESULT_TOKENS = 130, 50
"""Tokens of replies, for estimates: those of the recorded texts of AitZ's published episode, and 25 for the action."""

_KEYS = {name: re.compile(rf'"{name}"\s*+:\s*+(?=")') for name in ("THINK", "NEXT")}
_JSON = json.JSONDecoder(strict=False)  # a line break within a string is read


@dataclass(frozen=True)
class CoatAgent:
    """`language`: reads the answers, which are calls in its form.

    `elements`: `text` lists them below the goal, `marks` draws their numbers into the picture.

    `texts`: the origin of description and result in mode `coat`. `phone`: computed from activity and elements
    (`phone_texts`). `recorded`: those of the episode; for steps without texts, those of the phone. `model`: the same
    model is asked, with one call for the screen and one for two screens. `workers`: concurrent calls in
    `answer_episodes`.
    """

    calls: Calls
    prompts: Prompts
    language: ActionLanguage
    mode: Mode = "coat"
    elements: str = "text"
    texts: str = "recorded"
    max_tokens: int = 512
    workers: int = 8

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        """The answer has `failed` if a call failed. Raises EndpointError if the endpoint cannot be used at all, and
        CostLimitError at the limit of cost."""
        replies: list[Completion] = []
        try:
            return self._answer(goal, history, with_rows(screen), replies)
        except CallError as error:
            return Answer("", None, failed=str(error), usage=_usage(replies))

    def answer_episodes(self, episodes: Sequence[Episode], variants: Sequence[str] = ()) -> list[list[list[Answer]]]:
        """Answers step by step with `workers` concurrent calls."""
        if variants:
            raise UserError(f"a prompted model has no variant {variants[0]!r}; it decodes as its server is configured")
        return [answer_step_by_step(self, episodes, self.workers)]

    def expected(self, episodes: Sequence[Episode]) -> Expense:
        """The calls for the steps of `episodes`, with replies of typical lengths, whether they are on disk or not."""
        rehearsal = _Rehearsal(**{one.name: getattr(self, one.name) for one in fields(self)})
        answer_step_by_step(rehearsal, episodes)
        return sum(rehearsal.expenses, Expense())

    def estimate(self, episodes: Sequence[Episode], steps: int) -> str:
        sample = sum(map(len, episodes))
        expected = self.expected(episodes).times(steps / sample).in_words(self.calls.limits.price)
        return f"Estimate for {steps:,} steps, from {sample}: {expected}; replies that are on disk cost nothing"

    def spending(self) -> str:
        return self.calls.spending()

    def _answer(self, goal: str, history: Sequence[Turn], screen: Screen, replies: list[Completion]) -> Answer:
        texts = self._texts(history, screen, replies) if self.mode == "coat" else CoatTexts()
        messages = self._messages(goal, history, screen, texts)
        replies.append(self._ask(messages, self.max_tokens, REPLY_TOKENS[self.mode]))
        return replace(self.read(replies[-1].text, screen, texts.screen), usage=_usage(replies))

    def read(self, text: str, screen: Screen, description: str = "") -> Answer:
        """The answer that a reply is. `screen`: with its elements in the order of their numbers. Never raises."""
        thoughts = CoatTexts(description, _field(text, "THINK"), _field(text, "NEXT"))
        return Answer(
            text,
            self.language.decode(text, screen),
            thoughts=None if thoughts == CoatTexts() else thoughts,
            box=self.language.predicted_box(text, screen),
        )

    def _messages(self, goal: str, history: Sequence[Turn], screen: Screen, texts: CoatTexts) -> list[dict]:
        """`texts`: description of the screen and result of the last action."""
        elements = screen.elements or ()
        click: Click = ("marks" if self.elements == "marks" else "text") if elements else "box"
        paragraphs = {
            "goal": goal,
            "types": ", ".join(_type_of(turn.action) for turn in history) if self.mode == "coa" else "",
            "actions": _numbered_lines([_in_words(turn) for turn in history]) if self.mode == "coat" else "",
            "result": texts.result,
            "description": texts.screen,
            "elements": listed(elements) if click == "text" else "",
        }
        pixels = _pixels(screen)
        picture = numbered(pixels, elements) if click == "marks" else pixels
        form, click_text = self.prompts.forms[self.mode], self.prompts.clicks[click]
        return [
            system(self.prompts.fill("system", form=form, click=click_text)),
            user(f"{self.prompts.paragraphs(paragraphs)}\n\n{self.prompts.question}", [picture]),
        ]

    def _texts(self, history: Sequence[Turn], screen: Screen, replies: list[Completion]) -> CoatTexts:
        """Description of the screen, and result of the last action; no result at the first step."""
        if self.texts == "model":
            return self._asked_texts(history, screen, replies)
        screens = [*(turn.screen for turn in history[-1:]), screen]
        if self.texts == "phone":
            screens = [replace(shown, texts=None) for shown in screens]
        known = known_texts(screens)[-1]
        return CoatTexts(screen=_one_line(known.description), result=_one_line(known.result) if history else "")

    def _asked_texts(self, history: Sequence[Turn], screen: Screen, replies: list[Completion]) -> CoatTexts:
        replies.append(self._ask([user(self.prompts.describe, [_pixels(screen)])], TEXT_TOKENS, DESCRIPTION_TOKENS))
        description = _one_line(replies[-1].text)
        if not history:
            return CoatTexts(screen=description)
        pictures = [_pixels(history[-1].screen), _pixels(screen)]
        question = self.prompts.fill("compare", action=_in_words(history[-1]))
        replies.append(self._ask([user(question, pictures)], TEXT_TOKENS, RESULT_TOKENS))
        return CoatTexts(screen=description, result=_one_line(replies[-1].text))

    def _ask(self, messages: list[dict], max_tokens: int, typical: int) -> Completion:
        """`typical`: tokens of such a reply, for an estimate."""
        return self.calls.completion(messages, max_tokens)


@dataclass(frozen=True)
class _Rehearsal(CoatAgent):
    """Sends nothing, and adds up what the calls would cost."""

    expenses: list[Expense] = field(default_factory=list)

    def _ask(self, messages: list[dict], max_tokens: int, typical: int) -> Completion:
        self.expenses.append(Expense(1, estimated_tokens(messages), typical))
        return Completion("x" * (BYTES_PER_TOKEN * typical))


def _usage(replies: Sequence[Completion]) -> Usage:
    """The sum over all calls of a step; tokens and seconds are None where they are unknown for one of them."""
    tokens = [reply.tokens for reply in replies if reply.tokens is not None]
    seconds = [reply.seconds for reply in replies if reply.seconds is not None]
    known = bool(replies) and len(tokens) == len(replies)
    return Usage(
        sum(read for read, _ in tokens) if known else None,
        sum(written for _, written in tokens) if known else None,
        sum(reply.calls for reply in replies),
        sum(seconds) if replies and len(seconds) == len(replies) else None,
    )


def _field(text: str, name: str) -> str:
    """The value of a key of the answer, on one line; empty if it has none, or an incomplete one."""
    match = _KEYS[name].search(text)
    try:
        return "" if match is None else _one_line(_JSON.raw_decode(text, match.end())[0])
    except ValueError:
        return ""


def _in_words(turn: Turn) -> str:
    """The description of an earlier action: recorded, or by the agent, else by a template."""
    described = "" if turn.thoughts is None else _one_line(turn.thoughts.action)
    return described or describe_action(turn.action, _touched(turn))


def _touched(turn: Turn) -> str:
    """What a tap touches: the element's name, or else the point, (x, y) in thousandths."""
    if not touches_element(turn.action):
        return ""
    element = element_at(turn.screen.elements or (), turn.action.touch_yx)
    y, x = (round(1000 * value) for value in turn.action.touch_yx)
    return f"the point ({x}, {y})" if element is None else _one_line(element.name) or f"the point ({x}, {y})"


def _type_of(action: Action) -> str:
    """The name of the call."""
    names = {"tap": "click_element", "swipe": "scroll", "type": "input", "complete": "stop", "impossible": "stop"}
    return names.get(action.name, f"press_{action.name}" if action.name in ("back", "home", "enter") else action.name)


def _numbered_lines(lines: Sequence[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _pixels(screen: Screen) -> np.ndarray:
    if screen.pixels is None:
        raise UserError("a chat endpoint needs screenshots, and this source has none")
    return screen.pixels
