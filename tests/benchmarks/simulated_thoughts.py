"""The texts of `simulate --thoughts`: whether thought and description agree with the action, and how long texts are.

    python tests/benchmarks/simulated_thoughts.py [--episodes 500] [--quick]

Reads every thought (AT) and description (AD) by regular expressions, independently of the code that writes them, and
compares them with the action and the elements of the screen: an element that is named is on the screen and is the one
under the finger, what is "not here" is on no element, a direction is that of the finger. Lengths are tokens of
phone_vlm_tiny. The last line of output is JSON. Any disagreement is printed, and the exit status is then 1.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from statistics import mean

from transformers import AutoTokenizer

from vlm_agent.datasets.simulate import phone_seed, subset_of
from vlm_agent.devices.simulated_phone import SimulatedPhone, sample_task
from vlm_agent.episodes import ActionKind, CoatTexts, Step, element_at
from vlm_agent.models.run_layout import base_folder

TEXTS = tuple(field.name for field in fields(CoatTexts))
LOOK = {"up": "down", "down": "up", "left": "right", "right": "left"}
BUTTONS = {
    ActionKind.PRESS_BACK: ("Go back one page", "next is the page before"),
    ActionKind.PRESS_HOME: ("Go to the home screen", ".+ is not here, go home|next is the home screen"),
    ActionKind.PRESS_ENTER: ("Enter the text", "the text is in, enter it"),
    ActionKind.STATUS_TASK_COMPLETE: ("Stop, the task is complete", "all is done now"),
    ActionKind.STATUS_TASK_IMPOSSIBLE: (
        "Stop, the task is impossible",
        ".+ is not here, stop|this is impossible here",
    ),
}


def demonstrations(episodes: int, split: str = "train") -> Iterator[tuple[str, tuple[Step, ...]]]:
    """(goal, steps with texts, without pixels) of the first simulated episodes."""
    for seed in range(episodes):
        number = phone_seed(seed, split)
        task = sample_task(subset_of(number), split, number)
        phone = SimulatedPhone(number)
        task.set_up(phone)
        yield task.goal, task.solve(phone, pixels=False, thoughts=True)


def contradictions(step: Step) -> list[str]:
    """What in the step's thought and description disagrees with its action or its screen; empty if nothing does."""
    if step.coat is None:
        return ["no texts"]
    action = step.action
    found = list(_absences(step))
    if action.is_tap:
        return found + list(_tap(step))
    if action.is_swipe:
        look = f"look {LOOK[action.direction or '']}"
        description = f"Swipe {action.direction} on this page"
        thought = f".+ is not here(?:, {look})?|{look} for more|this is in the way, close it"
    elif action.kind is ActionKind.TYPE:
        text = re.escape(action.text)
        description, thought = f"Type the text {text}", f"this field is for {text}"
    else:
        description, thought = BUTTONS[action.kind]
    if not re.fullmatch(description, step.coat.action):
        found.append(f"description {step.coat.action!r} of {action.name}")
    return (
        found if re.fullmatch(thought, step.coat.think) else [*found, f"thought {step.coat.think!r} of {action.name}"]
    )


def _absences(step: Step) -> Iterator[str]:
    """What is "not here" must be the name of no element; of another app, which `home` is for, an icon may be seen."""
    match = re.match("(.+) is not here", step.coat.think if step.coat else "")
    if match and step.action.kind is not ActionKind.PRESS_HOME and match[1] in {item.name for item in step.elements}:
        yield f"{match[1]!r} is on the screen"


def _tap(step: Step) -> Iterator[str]:
    touched = element_at(step.elements, step.action.touch_yx)
    names = {element.name for element in step.elements}
    described = re.fullmatch("Tap on (.+)", step.coat.action if step.coat else "")
    thought = re.fullmatch("(?:(.+) is here, see )?(.+?)( is here)?", step.coat.think if step.coat else "")
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="40 episodes")
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(base_folder("phone_vlm_tiny") / "tokenizer")
    lengths: dict[str, list[int]] = {name: [] for name in TEXTS}
    counts: Counter[str] = Counter()
    for goal, steps in demonstrations(40 if options.quick else options.episodes):
        counts["episodes"] += 1
        for number, step in enumerate(steps):
            found = contradictions(step)
            counts.update(steps=1, contradictions=bool(found), taps=step.action.is_tap)
            for problem in found:
                print(f"{goal}, step {number}: {problem}")
            for name in TEXTS:
                text = getattr(step.coat, name)
                lengths[name].append(len(tokenizer(text, add_special_tokens=False).input_ids))
    figures = {
        name: {
            "tokens": round(mean(tokens), 1),
            "longest": max(tokens),
            "of_5_to_15": round(100 * mean(5 <= length <= 15 for length in tokens), 1),
        }
        for name, tokens in lengths.items()
    }
    print(json.dumps({**counts, **figures}))
    return 1 if counts["contradictions"] else 0


if __name__ == "__main__":
    sys.exit(main())
