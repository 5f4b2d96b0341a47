"""The prompts of agent `dynamic_planning`: the keys of `prompts.yaml`, and the examples of mode `few_shot`."""

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeInt

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.action_languages.language import SWIPES
from vlm_agent.agents.llm.prompts import PromptError, PromptFile
from vlm_agent.episodes import Action, Screen, UiElement
from vlm_agent.recipe.yaml_file import read_value
from vlm_agent.sentences.html import screen_html
from vlm_agent.settings import Section

PROMPTS = Path(__file__).with_name("prompts.yaml")
EXAMPLES = Path(__file__).with_name("examples.yaml")

FirstForm = Literal["plan", "plan_and_step", "description"]
ActionForm = Literal["action", "thought"]
Kind = Literal[FirstForm, ActionForm, "correction", "verdict", "caption"]
"""What a call asks for. `correction`: the action again, after a verdict."""
OF_REFERENCES = ("references", "reference", "caption", "caption_question")
"""Texts that a file may lack if the agent has no references."""

_PARAGRAPHS = ("goal", "actions", "steps", "plan", "step", "description", "unchanged", "html", "judged_action")


class PlannerPrompts(PromptFile):
    """The keys of `prompts.yaml`, which explains them."""

    PLACEHOLDERS: ClassVar[dict[str, set[str]]] = {
        "first_system": {"form"},
        "action_system": {"language", "form"},
        "examples": {"examples"},
        "example": {"goal", "html", "action"},
        "repair": {"reason"},
        "references": {"references"},
        "reference": {"goal", "caption", "actions"},
        "wrong": {"reason"},
        **{name: {name} for name in _PARAGRAPHS},
    }

    first_system: str
    first_forms: dict[FirstForm, str]
    action_system: str
    action_forms: dict[ActionForm, str]
    examples: str
    example: str
    goal: str
    actions: str
    steps: str
    plan: str
    step: str
    description: str
    unchanged: str
    html: str
    marks: str
    no_elements: str
    first_question: dict[FirstForm, str]
    action_question: str
    repair: str
    judge: str
    judged_action: str
    judge_question: str
    wrong: str
    references: str | None = None
    reference: str | None = None
    caption: str | None = None
    caption_question: str | None = None

    def with_examples(self, count: int, language: ActionLanguage) -> str:
        """The paragraph of the first `count` examples, their actions written in `language`."""
        shown = [
            self.fill(
                "example",
                goal=one.goal,
                html=screen_html(one.screen).strip(),
                action=language.encode(one.meant_action, one.screen),
            )
            for one in read_examples()[:count]
        ]
        return self.fill("examples", examples="\n\n".join(shown))


class _ExampleAction(Section):
    """One of these."""

    element: NonNegativeInt | None = None
    direction: str | None = None
    text: str | None = None
    key: Literal["back", "home", "enter"] | None = None
    status: Literal["complete", "impossible"] | None = None


class Example(Section):
    """An entry of `examples.yaml`."""

    goal: str
    elements: list[tuple[str, str, tuple[float, float, float, float]]]
    action: _ExampleAction

    @property
    def screen(self) -> Screen:
        return Screen(None, tuple(UiElement(box, text, kind) for kind, text, box in self.elements))

    @property
    def meant_action(self) -> Action:
        action = self.action
        if action.element is not None:
            return Action.tap(*UiElement(self.elements[action.element][2]).centre_yx)
        if action.direction is not None:
            return Action.swipe(*SWIPES[action.direction])
        if action.text is not None:
            return Action.type_text(action.text)
        if action.key is not None:
            return Action.press(action.key)
        return Action.complete() if action.status == "complete" else Action.impossible()


def read_examples() -> list[Example]:
    content: Any = read_value(EXAMPLES.read_text(encoding="utf-8"))
    if not isinstance(content, list):
        raise PromptError(f"{EXAMPLES} must hold a list of examples")
    return [Example(**entry) for entry in content]
