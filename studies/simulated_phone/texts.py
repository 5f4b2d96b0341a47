"""The texts of `simulate --thoughts`: whether they agree with the action, how long they are, what plans know.

    python -m studies.simulated_phone.texts [--episodes 500] [--quick]

Reads every thought (AT) and description (AD) by regular expressions, independently of the code that writes them, and
compares them with the action and the elements of the screen: an element that is named is on the screen and is the one
under the finger, what is "not here" is on no element, a direction is that of the finger. Lengths are tokens of
phone_vlm_tiny.

Of plans: the first line agrees with the action, and no line has a name of the phone's contents (a person, a city, an
item, a number, …) that neither the goal nor a screen until that step shows. `duplicates`: plans with two equal lines.
`second_is_next`: of plans with two or more lines, the share (%) whose second line is the next step, word for word. It
is not where a dialog, swipes to a target, or a choice that only the next screen shows come between.

The last line of output is JSON. Any disagreement is printed, and the exit status is then 1.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import mean

from transformers import AutoTokenizer

from vlm_agent.episodes import ActionKind, Step, element_at
from vlm_agent.geometry import OPPOSITE
from vlm_agent.models.run_layout import base_folder
from vlm_agent.simulator import words
from vlm_agent.simulator.demonstrations import simulated_tasks

TEXTS = ("screen", "think", "action", "result")
SHORT = 8
"""Tokens of a plan's line, as far as possible."""

CONTENTS = frozenset(
    word
    for names in (words.CITIES, words.LABELS, words.NAMES, words.COLOURS, words.PRODUCTS, words.TOPICS, words.DAYS)
    for name in (*names, *words.SHOPS, *words.SITES, *words.STORE_APPS)
    for word in name.casefold().split()
)
"""Words that name what one phone or goal has and another has not; so does every number."""

BUTTONS = {
    ActionKind.PRESS_BACK: ("Go back one page", "next is the page before"),
    ActionKind.PRESS_HOME: ("Go to the home screen", ".+ is not here, go home|next is the home screen"),
    ActionKind.PRESS_ENTER: ("Enter the text", "the text is in, enter it"),
    ActionKind.STATUS_TASK_COMPLETE: ("Stop, the task is complete", "all is done now"),
    ActionKind.STATUS_TASK_IMPOSSIBLE: ("Stop, the task is impossible", ".+ is not here, stop|this is impossible here"),
}


def demonstrations(episodes: int) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """(goal, steps with texts, without pixels) of the first simulated training episodes."""
    for simulated in simulated_tasks(episodes, 0, "train"):
        phone, task = simulated.fresh_phone()
        yield task.goal, task.solve(phone, pixels=False, thoughts=True)


def contradictions(step: Step) -> list[str]:
    """What in the step's thought and description disagrees with its action or its screen; empty if nothing does."""
    if step.notes is None:
        return ["no texts"]
    action = step.action
    found = list(_absences(step))
    if action.is_tap:
        return found + list(_tap(step))
    if action.is_swipe:
        look = f"look {OPPOSITE[action.direction or '']}"
        description = f"Swipe {action.direction} on this page"
        thought = f".+ is not here(?:, {look})?|{look} for more|this is in the way, close it"
    elif action.kind is ActionKind.TYPE:
        text = re.escape(action.text)
        description, thought = f"Type the text {text}", f"this field is for {text}"
    else:
        description, thought = BUTTONS[action.kind]
    if not re.fullmatch(description, step.notes["action"]):
        found.append(f"description {step.notes['action']!r} of {action.name}")
    return (
        found
        if re.fullmatch(thought, step.notes["think"])
        else [*found, f"thought {step.notes['think']!r} of {action.name}"]
    )


def _absences(step: Step) -> Iterator[str]:
    """What is "not here" must be the name of no element; of another app, which `home` is for, an icon may be seen."""
    match = re.match("(.+) is not here", step.notes["think"] if step.notes else "")
    if match and step.action.kind is not ActionKind.PRESS_HOME and match[1] in {item.name for item in step.elements}:
        yield f"{match[1]!r} is on the screen"


def _tap(step: Step) -> Iterator[str]:
    touched = element_at(step.elements, step.action.touch_yx)
    names = {element.name for element in step.elements}
    described = re.fullmatch("Tap on (.+)", step.notes["action"] if step.notes else "")
    thought = re.fullmatch("(?:(.+) is here, see )?(.+?)( is here)?", step.notes["think"] if step.notes else "")
    if touched is None or described is None or thought is None:
        yield "no element, or unreadable texts"
        return
    if described[1] != touched.name:
        yield f"description {described[0]!r} of a tap on {touched.name}"
    if thought[0] == "this is in the way, close it":
        return
    if thought[2] != touched.name or (thought[1] is None) == (thought[3] is None):
        yield f"thought {thought[0]!r} of a tap on {touched.name}"
    if thought[1] is not None and thought[1] not in names:
        yield f"{thought[1]!r} is not on the screen"


PLANNED = {
    ActionKind.PRESS_BACK: "go back",
    ActionKind.PRESS_HOME: "go home(?: for .+)?",
    ActionKind.PRESS_ENTER: "enter",
    ActionKind.STATUS_TASK_COMPLETE: "complete",
    ActionKind.STATUS_TASK_IMPOSSIBLE: "impossible",
}


def plan_contradictions(step: Step) -> list[str]:
    """What in the step's plan disagrees with its action or its screen; empty if nothing does."""
    if not step.notes.get("plan"):
        return ["no plan"]
    (line, *later), action = step.notes["plan"].split("\n"), step.action
    found = [] if line == step.notes["step"] else ["the step is not the first line"]
    if len(later) > 3:
        found.append(f"{len(later) + 1} lines")
    if action.is_tap:
        found += _planned_tap(step, line)
    elif action.is_swipe:
        look = OPPOSITE[action.direction or ""]
        is_right: object = re.fullmatch(f"look {look}(?: for .+)?", line)
        is_right = is_right or (action.direction == "down" and line == "open quick settings")
        found += [] if is_right or line == "close this" else [f"{line!r} for a swipe {action.direction}"]
    else:
        expected = re.escape(f"type {action.text}") if action.kind is ActionKind.TYPE else PLANNED[action.kind]
        found += [] if re.fullmatch(expected, line) else [f"{line!r} for {action.name}"]
    return found


def _planned_tap(step: Step, line: str) -> Iterator[str]:
    """A touched text shares a word with the line, unless the named thing has no text of its own on the screen."""
    if line == "close this":
        return
    match = re.fullmatch("(tap|open|add|remove|star|update) (.+?)( again)?", line)
    touched = element_at(step.elements, step.action.touch_yx)
    if match is None or touched is None:
        yield f"{line!r} for a tap"
        return
    is_other = touched.text and not of_text(line) & of_text(touched.text)
    if is_other and match[2].casefold() in {element.text.casefold() for element in step.elements}:
        yield f"{line!r} for a tap on {touched.name}"


def foreign_names(goal: str, steps: Sequence[Step]) -> Iterator[str]:
    """The lines of plans with a name that neither the goal nor a screen until their step shows."""
    known = of_text(goal)
    for number, step in enumerate(steps):
        known |= {word for element in step.elements for word in of_text(element.text)}
        for line in step.notes.get("plan", "").split("\n"):
            if names := {word for word in of_text(line) if word in CONTENTS or word.isdigit()} - known:
                yield f"{goal}, step {number}: {line!r} names {', '.join(sorted(names))}"


def of_text(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.casefold()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="40 episodes")
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(base_folder("phone_vlm_tiny") / "tokenizer")
    lengths: dict[str, list[int]] = {name: [] for name in TEXTS}
    counts: Counter[str] = Counter()
    line_lengths: list[int] = []
    is_next: list[bool] = []
    for goal, steps in demonstrations(40 if options.quick else options.episodes):
        counts["episodes"] += 1
        foreign = list(foreign_names(goal, steps))
        counts.update(plan_contradictions=0, foreign_names=len(foreign))
        print("".join(f"{problem}\n" for problem in foreign), end="")
        plans = [(step.notes["plan"].split("\n"), step.notes["step"]) for step in steps if step.notes.get("plan")]
        is_next += [before[1] == now for (before, _), (_, now) in pairwise(plans) if len(before) > 1]
        for number, step in enumerate(steps):
            found = contradictions(step)
            counts.update(steps=1, contradictions=bool(found), taps=step.action.is_tap)
            for problem in found:
                print(f"{goal}, step {number}: {problem}")
            if problems := plan_contradictions(step):
                counts["plan_contradictions"] += 1
                print(f"{goal}, step {number}: {', '.join(problems)}")
            lines = step.notes["plan"].split("\n") if step.notes.get("plan") else []
            counts.update(plan_lines=len(lines), duplicates=len(set(lines)) < len(lines))
            line_lengths += [len(tokenizer(line, add_special_tokens=False).input_ids) for line in lines]
            for name in TEXTS:
                text = step.notes[name]
                lengths[name].append(len(tokenizer(text, add_special_tokens=False).input_ids))
    figures = {
        name: {
            "tokens": round(mean(tokens), 1),
            "longest": max(tokens),
            "of_5_to_15": round(100 * mean(5 <= length <= 15 for length in tokens), 1),
        }
        for name, tokens in lengths.items()
    }
    figures["plan"] = {
        "tokens_a_line": round(mean(line_lengths), 1),
        "longest": max(line_lengths),
        f"of_at_most_{SHORT}": round(100 * mean(length <= SHORT for length in line_lengths), 1),
        "tokens_a_step": round(sum(line_lengths) / counts["steps"], 1),
        "second_is_next": round(100 * mean(is_next), 1),
    }
    print(json.dumps({**counts, **figures}))
    return 1 if counts["contradictions"] or counts["plan_contradictions"] or counts["foreign_names"] else 0


if __name__ == "__main__":
    sys.exit(main())
