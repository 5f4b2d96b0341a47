"""A vision-language model that is prompted with a chain of actions, of thoughts, or of both (CoAT).

    coa     goal, screen, types of all actions so far                                     → ACTION, ARGS
    cot     goal, screen                                                                  → THINK, ACTION, ARGS
    coat    goal, screen, all actions so far in words, the last action's result, and a
            description of the screen                                                     → THINK, NEXT, ACTION, ARGS

The prompts are `prompts.yaml`. The answers are calls of the action language `coat`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.agent import Answer, Turn
from vlm_agent.agents.coat.elements import listed, with_rows
from vlm_agent.agents.coat.prompts import Click, CoatPrompts, Mode
from vlm_agent.agents.llm.cost import BYTES_PER_TOKEN
from vlm_agent.agents.llm.prompted import PromptedAgent, Replies
from vlm_agent.agents.llm.prompts import numbered_lines, pixels_of, system, turn_in_words, user
from vlm_agent.drawing.marks import numbered
from vlm_agent.episodes import BUTTONS, NO_NOTES, Action, Screen
from vlm_agent.sentences.notes import known_notes
from vlm_agent.texts.lines import one_line, printable, without_tags

TEXT_TOKENS = 256
"""Limit of a description or result that the model is asked for."""

REPLY_TOKENS: dict[Mode, int] = {"coa": 25, "cot": 90, "coat": 105}
DESCRIPTION_TOKENS, RESULT_TOKENS = 130, 50
"""Tokens of replies, for estimates: those of the recorded texts of AitZ's published episode, and 25 for the action."""

_KEYS = {name: re.compile(rf'"{name}"\s*+:\s*+(?=")') for name in ("THINK", "NEXT")}
_JSON = json.JSONDecoder(strict=False)  # a line break within a string is read


@dataclass(frozen=True)
class CoatAgent(PromptedAgent):
    """`language`: reads the answers, which are calls in its form.

    `elements`: `text` lists them below the goal, `marks` draws their numbers into the picture.

    `texts`: the origin of description and result in mode `coat`. `phone`: computed from activity and elements
    (`texts/phone.py`). `recorded`: those of the episode; for steps without texts, those of the phone. `model`: the same
    model is asked, with one call for the screen and one for two screens.

    `thoughts`: in mode `coat`, the thoughts of earlier steps are shown below their actions: those of the episode in an
    evaluation of demonstrations, its own on a phone. In the paper's zero-shot evaluation (section 2.2, table 1)
    recorded thoughts are part of the prompt. That of the current step is never shown: its writer knew the next action.
    """

    prompts: CoatPrompts
    language: ActionLanguage
    mode: Mode = "coat"
    elements: str = "text"
    texts: str = "recorded"
    thoughts: bool = False
    max_tokens: int = 512

    def answer(self, goal: str, history: Sequence[Turn], screen: Screen, replies: Replies) -> Answer:
        screen = with_rows(screen)
        texts = self._texts(history, screen, replies) if self.mode == "coat" else NO_NOTES
        messages = self._messages(goal, history, screen, texts)
        reply = _ask(replies, messages, self.max_tokens, REPLY_TOKENS[self.mode])
        return self.read(reply, screen, texts.get("screen", ""))

    def read(self, text: str, screen: Screen, description: str = "") -> Answer:
        """The answer that a reply is. `screen`: with its elements in the order of their numbers. Never raises."""
        notes = {"screen": description, "think": _field(text, "THINK"), "action": _field(text, "NEXT")}
        return Answer(
            text,
            self.language.decode(text, screen),
            {name: written for name, written in notes.items() if written},
            box=self.language.predicted_box(text, screen),
        )

    def _messages(self, goal: str, history: Sequence[Turn], screen: Screen, texts: Mapping[str, str]) -> list[dict]:
        """`texts`: description of the screen and result of the last action."""
        elements = screen.elements or ()
        click: Click = ("marks" if self.elements == "marks" else "text") if elements else "box"
        # Each with the number of its action.
        thoughts = enumerate((without_tags(printable(turn.notes.get("think", ""))) for turn in history), 1)
        paragraphs = {
            "goal": one_line(goal),
            "types": ", ".join(_type_of(turn.action) for turn in history) if self.mode == "coa" else "",
            "actions": numbered_lines([turn_in_words(turn) for turn in history]) if self.mode == "coat" else "",
            "thoughts": "\n".join(f"{n}. {thought}" for n, thought in thoughts if thought) if self.thoughts else "",
            "result": texts.get("result", ""),
            "description": texts.get("screen", ""),
            "elements": listed(elements) if click == "text" else "",
        }
        pixels = pixels_of(screen)
        picture = numbered(pixels, elements) if click == "marks" else pixels
        form, click_text = self.prompts.forms[self.mode], self.prompts.clicks[click]
        return [
            system(self.prompts.fill("system", form=form, click=click_text)),
            user(f"{self.prompts.paragraphs(paragraphs)}\n\n{self.prompts.question}", [picture]),
        ]

    def _texts(self, history: Sequence[Turn], screen: Screen, replies: Replies) -> dict[str, str]:
        """Description of the screen, and result of the last action; no result at the first step."""
        if self.texts == "model":
            return self._asked_texts(history, screen, replies)
        screens = [*(turn.screen for turn in history[-1:]), screen]
        if self.texts == "phone":
            screens = [replace(shown, notes=NO_NOTES) for shown in screens]
        known = known_notes(screens)[-1]
        return {"screen": one_line(known["screen"]), "result": one_line(known["result"]) if history else ""}

    def _asked_texts(self, history: Sequence[Turn], screen: Screen, replies: Replies) -> dict[str, str]:
        question = [user(self.prompts.describe, [pixels_of(screen)])]
        description = one_line(_ask(replies, question, TEXT_TOKENS, DESCRIPTION_TOKENS))
        if not history:
            return {"screen": description}
        pictures = [pixels_of(history[-1].screen), pixels_of(screen)]
        question = [user(self.prompts.fill("compare", action=turn_in_words(history[-1])), pictures)]
        return {"screen": description, "result": one_line(_ask(replies, question, TEXT_TOKENS, RESULT_TOKENS))}


def _ask(replies: Replies, messages: list[dict], max_tokens: int, typical: int) -> str:
    """`typical`: tokens of such a reply, for an estimate."""
    return replies.ask(messages, max_tokens, "x" * (BYTES_PER_TOKEN * typical), typical)


def _field(text: str, name: str) -> str:
    """The value of a key of the answer, on one line; empty if it has none, or an incomplete one."""
    match = _KEYS[name].search(text)
    try:
        return "" if match is None else one_line(_JSON.raw_decode(text, match.end())[0])
    except ValueError:
        return ""


def _type_of(action: Action) -> str:
    """The name of the call."""
    names = {"tap": "click_element", "swipe": "scroll", "type": "input", "complete": "stop", "impossible": "stop"}
    return names.get(action.name, f"press_{action.name}" if action.name in BUTTONS else action.name)
