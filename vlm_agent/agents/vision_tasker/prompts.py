"""The prompts of agent `vision_tasker`, read from a YAML file for each language."""

from pathlib import Path
from typing import ClassVar, Literal

from vlm_agent.agents.llm.prompts import PromptFile
from vlm_agent.agents.vision_tasker.reading import Problem

Shown = Literal["words", "html", "marks"]
PromptLanguage = Literal["en", "zh"]

PROMPTS: dict[PromptLanguage, Path] = {
    "en": Path(__file__).with_name("prompts_en.yaml"),
    "zh": Path(__file__).with_name("prompts_zh.yaml"),
}

_ELEMENT_LINES = ("line_tap", "line_long_press")


class VisionTaskerPrompts(PromptFile):
    """The keys of `prompts_en.yaml`, which explains them."""

    PLACEHOLDERS: ClassVar[dict[str, set[str]]] = {
        "system": {"screen"},
        "examples": {"examples"},
        "example": {"goal", "actions"},
        "repair": {"reason"},
        "absent": {"element", "available"},
        "ambiguous": {"element", "available"},
        "line_enter_text": {"text", "element"},
        "line_type": {"text"},
        "line_swipe": {"direction"},
        "line_swipe_on": {"direction", "element"},
        "line_swipe_to": {"direction", "target"},
        "line_press": {"key"},
        "line_open": {"app"},
        "line_numbered": {"line", "number"},
        **{name: {"element"} for name in _ELEMENT_LINES},
        **{name: {name} for name in ("goal", "actions", "unchanged", "words", "html")},
    }

    system: str
    screens: dict[Shown, str]
    goal: str
    examples: str
    example: str
    actions: str
    no_effect: str
    unchanged: str
    words: str
    html: str
    marks: str
    no_elements: str
    question: str
    repair: str
    absent: str
    ambiguous: str
    problems: dict[Problem, str]
    line_tap: str
    line_long_press: str
    line_enter_text: str
    line_type: str
    line_and_enter: str
    line_swipe: str
    line_swipe_on: str
    line_swipe_to: str
    line_press: str
    line_numbered: str
    directions: dict[Literal["up", "down", "left", "right"], str]
    keys: dict[Literal["back", "home", "enter"], str]
    line_done: str
    line_impossible: str
    line_open: str
    line_other: str
    a_place: str
