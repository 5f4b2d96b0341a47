"""Whether written thoughts name what is then done, and whether thought and action are right.

Texts are read by regular expressions, independently of the code that writes them (`studies.simulated_phone.texts`). A
thought *names* an action if it is a reason for it on this screen: what the thought says is here is what the action
touches, what it says is not here is on no element, a direction is that of the finger. A thought is *right* if it names
the demonstrated action.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import mean

from studies.ablation.runs import Run, data_of
from studies.simulated_phone.texts import BUTTONS, contradictions
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Action, ActionKind, Step, UiElement, element_at
from vlm_agent.evaluation.predictions import Prediction, read_predictions
from vlm_agent.evaluation.scoring.dialects import verdicts
from vlm_agent.sentences.notes import HeadedNotes, NoteLines

SCORER = "coat_point"
WRITTEN = "thoughts"


@dataclass(frozen=True)
class Thought:
    """What an answer wrote before its action, and the verdicts on both."""

    step: Prediction
    texts: Mapping[str, str]
    action_text: str
    thought_names_it: bool
    description_names_it: bool
    thought_right: bool
    action_right: bool


def written(run: Run) -> dict:
    """Shares and examples of the thoughts of a finished run."""
    thoughts = list(thoughts_of(run))
    return {"shares": shares(thoughts), "examples": examples(run, thoughts)}


def thoughts_of(run: Run) -> Iterator[Thought]:
    """The thoughts of a finished run that learns AT and AD, in the order of its predictions."""
    kinds = {"trajectory": NoteLines, "chain_of_actions": HeadedNotes}
    data = data_of(run)
    thoughts = kinds[data.sentences](data.notes)
    steps = read_predictions(run.evaluation / "predictions.parquet")
    for step, right in zip(steps, verdicts(steps, (SCORER,))[SCORER].tolist(), strict=True):
        texts, action_text = thoughts.split(step.text)
        yield Thought(
            step,
            texts,
            action_text,
            thought_names_it=names(texts.get("think", ""), step.predicted, step.elements),
            description_names_it=step.predicted is not None
            and texts.get("action", "") == description_of(step.predicted, step.elements),
            thought_right=names(texts.get("think", ""), step.gold, step.elements),
            action_right=right,
        )


def names(thought: str, action: Action | None, elements: tuple[UiElement, ...]) -> bool:
    """Whether the thought (AT) is a reason for the action on a screen with these elements."""
    if action is None:
        return False
    description = description_of(action, elements)
    coat = {"think": thought, "action": description or ""}
    return description is not None and not contradictions(Step(None, action, elements, notes=coat))


def description_of(action: Action, elements: tuple[UiElement, ...]) -> str | None:
    """The description (AD) that the expert would write. None for an action that it never takes: a tap on no element."""
    if action.is_tap:
        touched = element_at(elements, action.touch_yx)
        return None if touched is None else f"Tap on {touched.name}"
    if action.is_swipe:
        return f"Swipe {action.direction} on this page"
    if action.kind is ActionKind.TYPE:
        return f"Type the text {action.text}"
    return BUTTONS[action.kind][0] if action.kind in BUTTONS else None


def shares(thoughts: list[Thought]) -> dict[str, float]:
    """Percent of the steps."""
    right = [(one.thought_right, one.action_right) for one in thoughts]
    columns = {
        "thought names what is done": [one.thought_names_it for one in thoughts],
        "description names what is done": [one.description_names_it for one in thoughts],
        "thought right": [thought for thought, _ in right],
        "action right": [action for _, action in right],
        "both right": [all(both) for both in right],
        "only the thought": [thought and not action for thought, action in right],
        "only the action": [action and not thought for thought, action in right],
    }
    return {name: round(100 * mean(values), 1) for name, values in columns.items()}


def examples(run: Run, thoughts: list[Thought], count: int = 10) -> list[dict[str, str]]:
    """Steps at random, the same at each call: half of them with a right thought, or as many as there are."""
    recorded, rng = _recorded(run), random.Random(0)
    right, wrong = ([one for one in thoughts if one.thought_right is value] for value in (True, False))
    chosen = rng.sample(right, min(count // 2, len(right)))
    chosen += rng.sample(wrong, min(count - len(chosen), len(wrong)))
    return [
        {
            "goal": one.step.goal,
            "step": f"{one.step.step + 1} of {one.step.episode_length}",
            "expert": recorded[one.step.episode_id][one.step.step],
            "thought": one.texts.get("think", ""),
            "description": one.texts.get("action", ""),
            "action": one.action_text,
            "verdict": f"thought {_word(one.thought_right)}, action {_word(one.action_right)}",
        }
        for one in chosen
    ]


def _recorded(run: Run) -> dict[str, list[str]]:
    """The expert's thought and description of each step, by episode."""
    dataset = ShardDataset(run.data / "shards", split="test")
    return {
        episode.id: [f"{step.notes['think']} / {step.notes['action']}" if step.notes else "" for step in episode.steps]
        for episode in dataset.each_without_pixels(range(len(dataset)))
    }


def _word(right: bool) -> str:
    return "right" if right else "wrong"
