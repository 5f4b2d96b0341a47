"""The prompts of agent `coat`, read from a YAML file."""

from pathlib import Path
from typing import ClassVar, Literal

from vlm_agent.agents.llm.prompts import PromptFile

PROMPTS = Path(__file__).with_name("prompts.yaml")

Mode = Literal["coa", "cot", "coat"]
Click = Literal["text", "marks", "box"]


class CoatPrompts(PromptFile):
    """The keys of `prompts.yaml`, which explains them."""

    PLACEHOLDERS: ClassVar[dict[str, set[str]]] = {
        "system": {"form", "click"},
        "compare": {"action"},
        **{name: {name} for name in ("goal", "types", "actions", "thoughts", "result", "description", "elements")},
    }

    system: str
    forms: dict[Mode, str]
    clicks: dict[Click, str]
    goal: str
    types: str
    actions: str
    thoughts: str
    result: str
    description: str
    elements: str
    question: str
    describe: str
    compare: str
