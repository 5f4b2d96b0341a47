"""Every reader of texts from outside (models, phones, screens, traces, servers), as functions of one text."""

import json
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from helpers.agents.coat_answers import predicted_type
from helpers.data.notes import headed, row

from vlm_agent.action_languages import LANGUAGES
from vlm_agent.action_languages.coat import predicted_box
from vlm_agent.action_languages.names import spoken_name
from vlm_agent.action_languages.released.language import ScreenSizeError
from vlm_agent.agents.coat.agent import CoatAgent
from vlm_agent.agents.dynamic_planning.reading import read_description, read_verdict, split_thought, without_label
from vlm_agent.agents.examples import table as published
from vlm_agent.agents.examples.store import checked
from vlm_agent.agents.llm.completion import after_reasoning, read_completion, refused_parameters
from vlm_agent.agents.llm.replies import read_object, read_plan, sendable
from vlm_agent.agents.vision_tasker.calls import read_call, with_plain_punctuation
from vlm_agent.annotation.annotator import clean_text, element_name
from vlm_agent.annotation.check import check_planned_step
from vlm_agent.devices.acting.demonstrating.lines import touched_name
from vlm_agent.devices.acting.purchases import purchase_reason
from vlm_agent.devices.adb.apps import read_activity, read_components, read_launcher, read_packages
from vlm_agent.devices.adb.display import read_sizes
from vlm_agent.devices.adb.elements import read_elements, read_field
from vlm_agent.devices.adb.fingers import read_rotation
from vlm_agent.devices.adb.getevent import Lines, read_event, read_panels
from vlm_agent.episodes import Action, Screen, Step, UiElement
from vlm_agent.files.console import neutral
from vlm_agent.screens.describe import plain
from vlm_agent.sentences.html import screen_html
from vlm_agent.sentences.notes import as_line, from_line
from vlm_agent.texts.lines import in_fence, one_line, printable, without_tags
from vlm_agent.texts.phone import pieces, screen_text
from vlm_agent.texts.secrets import Focus, Secrets, mask_cards, names_secret

_LANGUAGES = {name: kind().build() for name, kind in LANGUAGES.items()}


def _screen(text: str) -> Screen:
    return Screen(np.zeros((1, 1, 3), np.uint8), (UiElement((0.1, 0.1, 0.2, 0.2), text),), text)


def _secrets(text: str) -> str:
    secrets = Secrets()
    secrets.add("12", continues=False)
    secrets.add(text[:50], continues=True)
    return secrets.mask(text)


def _typed_secret(text: str) -> bool:
    return Focus(text, (0.15, 0.15), _screen(text).elements).is_secret(text, text, _screen(text).elements)


def _languages(text: str) -> None:
    for language in _LANGUAGES.values():
        language.decode(text, _screen("OK"))
        with suppress(ScreenSizeError):  # of a language that counts pixels
            language.decode(text, None)
        if language.has_ending:
            language.ending(text)


def _demonstration_line(text: str) -> object:
    return [published._line(part) for part in published._parts(text)]


def _coat_agent(text: str) -> object:
    agent = CoatAgent.__new__(CoatAgent)
    object.__setattr__(agent, "language", _LANGUAGES["coat"])
    return agent.read(text, _screen("OK"))


def _dumped(text: str) -> object:
    node = f'<hierarchy><node text="{text}" content-desc="{text}" bounds="[0,0][9,9]"/></hierarchy>'
    return read_elements(node, (10, 10)), read_elements(text, (10, 10)), read_field(text), read_field(node)


def _stored_demonstration(text: str) -> object:
    return checked("a goal", "an app", [f"type '{text}"[:500]])


def _completion(text: str) -> object:
    return read_completion(json.dumps({"choices": [{"message": {"content": text}}]}).encode(), 9)


PARSERS: dict[str, Callable[[str], object]] = {
    "action languages": _languages,
    "boxes and types of AitZ": lambda text: (predicted_type(text), predicted_box(text, _screen(text))),
    "names of elements": lambda text: spoken_name(_screen(text).elements[0]),
    "answers of CoAT": _coat_agent,
    "objects": lambda text: read_object(text, "plan"),
    "plans": lambda text: read_plan(text, with_step=True),
    "verdicts": read_verdict,
    "descriptions": read_description,
    "thoughts": split_thought,
    "labels": without_label,
    "calls of VisionTasker": read_call,
    "punctuation": lambda text: with_plain_punctuation(text, is_mixed=True),
    "fences": in_fence,
    "fenced": lambda text: in_fence(f"```\n{text}\n```"),
    "reasoning": after_reasoning,
    "completions": _completion,
    "bodies of completions": lambda text: read_completion(text.encode(), 9),
    "refusals": lambda text: refused_parameters(f"max_tokens {text}".encode()),
    "turns": sendable,
    "texts of annotations": lambda text: element_name(clean_text(text), [text]),
    "planned steps": lambda text: check_planned_step(text, Step(None, Action.tap(0.1, 0.1), _screen(text).elements)),
    "dumps of uiautomator": _dumped,
    "activities": read_activity,
    "launchers": read_launcher,
    "packages": lambda text: (read_packages(text), read_components(text)),
    "sizes": read_sizes,
    "rotations": read_rotation,
    "panels": read_panels,
    "events": lambda text: [read_event(line) for line in Lines().take(text.encode())],
    "cards": mask_cards,
    "secrets": _secrets,
    "names of secrets": names_secret,
    "focus": _typed_secret,
    "purchases": lambda text: purchase_reason(Action.tap(0.15, 0.15), text, text, _screen(text).elements, True),
    "typed purchases": lambda text: purchase_reason(Action.type_text("a"), text, text, None),
    "published demonstrations": _demonstration_line,
    "stored demonstrations": _stored_demonstration,
    "touched names": lambda text: touched_name(Action.tap(0.15, 0.15), _screen(text).elements),
    "read texts": plain,
    "lines": lambda text: (one_line(text), printable(text), without_tags(text)),
    "screens as HTML": lambda text: screen_html(_screen(text)),
    "texts of screens": lambda text: (screen_text(_screen(text)), pieces(text)),
    "headed notes": lambda text: headed(row(7)).split(text),
    "notes": lambda text: (headed(row(7)).supervised({"think": text}), as_line("plan", text), from_line("plan", text)),
    "terminal": neutral,
}
