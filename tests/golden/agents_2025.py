"""Compares this package with published code of agents for AndroidControl and GUI-Odyssey.

    python tests/golden/agents_2025.py languages FILE…
    python tests/golden/agents_2025.py dialects FILE…
    python tests/golden/agents_2025.py whole_set AGENT.jsonl.gz TOTALS.json
    python tests/golden/agents_2025.py android_control FOLDER
    python tests/golden/agents_2025.py damaged FOLDER

Each prints what it compared, the number of differences, and every difference; the exit status is 1 if there is one.
"""

import gzip
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlm_agent.action_languages.language import SWIPES
from vlm_agent.episodes import TARGET, Action, ActionKind, UiElement
from vlm_agent.evaluation.predictions import Prediction, write_predictions
from vlm_agent.evaluation.scoring.dialects import DIALECTS
from vlm_agent.evaluation.scoring.steps import step_tables

_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
_KINDS = {kind.short_name: kind for kind in ActionKind}
_SAME = {"navigate_back": "back", "navigate_home": "home", "wait": "wait", "finish": "complete"}
_ODYSSEY = {"PRESS_BACK": "back", "PRESS_HOME": "home", "PRESS_RECENT": "recents", "IMPOSSIBLE": "impossible"}
_CANDIDATES = ("clawgui", "infigui", "ui_s1")
"""Dialects whose boxes are candidates; those of others are windows and nodes."""

_LETTERS = "os_genesis"
"""OS-Genesis' gold file names typing `type`, and its code matches nothing with AndroidControl's name `input_text`. The
golden files have both: `type`, and in whole_set odd episodes, is an action that types; the other one stands here for an
answer, which OS-Genesis' language cannot write."""


def read(name: str) -> list[dict]:
    with gzip.open(name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def plain(action: dict) -> Action | None:
    """The action of a case, with points as float32, as shards store them."""
    kind = action["kind"]
    if kind == "none":
        return None
    if kind == "tap":
        return Action.tap(*_float32(action["point"]))
    if kind == "long_press":
        return Action.long_press(*_float32(action["point"]))
    if kind == "swipe":
        ends = action.get("touch"), action.get("lift")
        if ends[0] is None or ends[0] == ends[1]:
            ends = SWIPES[action["finger"]]
        return Action.swipe(_float32(ends[0]), _float32(ends[1]))
    return Action(_KINDS[kind], text=action.get("text", ""))


def gold_of_android_control(action: dict, width: int, height: int, types: bool = True) -> Action:
    kind = action["action_type"]
    if kind in ("click", "long_press"):
        point = _float32((action["y"] / height, action["x"] / width))
        return Action.tap(*point) if kind == "click" else Action.long_press(*point)
    if kind == "scroll":
        return Action.swipe(*SWIPES[_OPPOSITE[action["direction"]]])
    if kind == "open_app":
        return Action.open_app(action["app_name"])
    if kind in ("type", "type_text", "input_text"):
        return Action.type_text(action["text"]) if types else Action.answer(action["text"])
    return Action(_KINDS[_SAME[kind]])


def gold_of_odyssey(line: str) -> Action:
    """A line of OdysseyAgent (`TYPE: text`) or of OS-Atlas (`TYPE [text]`)."""
    word, rest = re.fullmatch(r"(\w+):? ?(.*)", line, re.DOTALL).groups()
    if word in ("CLICK", "LONG_PRESS"):
        x, y = (int(number) / 1000 for number in re.findall(r"\d+", rest))
        return Action.tap(*_float32((y, x))) if word == "CLICK" else Action.long_press(*_float32((y, x)))
    if word == "SCROLL":
        return Action.swipe(*SWIPES[rest.strip("[]").lower()])
    if word == "TYPE":
        return Action.type_text(rest[1:-1] if line.startswith("TYPE [") else rest)
    return Action(_KINDS[_ODYSSEY.get(word, word.lower())])


def _float32(point: Sequence[float]) -> tuple[float, float]:
    y, x = (min(1.0, float(np.float32(value))) for value in point)
    return y, x


def _of_uground(prediction: dict, width: int, height: int) -> tuple[Action | None, tuple | None]:
    """UGround's answer is an action and a point, which may lie off the screen: the box of the answer."""
    action, point = prediction["action"], prediction["point"]
    box = None if point is None else (*(float(np.float32(v)) for v in (point[1] / height, point[0] / width)), 0.0, 0.0)
    if action["action_type"] in ("click", "long_press"):
        x, y = (min(max(value, 0), side) for value, side in zip(point or (0, 0), (width, height), strict=True))
        action = action | {"x": x, "y": y}
    return gold_of_android_control(action, width, height), box


def _elements(dialect: str, gold: dict, width: int, height: int) -> tuple[UiElement, ...]:
    elements = []
    kind = TARGET if dialect in _CANDIDATES else "TEXT"
    for x1, y1, x2, y2, *words in [*gold.get("boxes", ()), *gold.get("tree", ())]:
        box = (y1 / height, x1 / width, (y2 - y1) / height, (x2 - x1) / width)
        elements.append(UiElement(_box32(box), "\n".join(filter(None, words)), kind))
    if gold.get("sam2_bbox"):
        x1, y1, x2, y2 = (value / 1000 for value in gold["sam2_bbox"])
        elements.append(UiElement(_box32((y1, x1, y2 - y1, x2 - x1)), "", TARGET))
    action = gold.get("action", {})
    if action.get("action_type") == "type_text" and "x" in action:
        elements.append(UiElement(_box32((action["y"] / height, action["x"] / width, 0, 0)), "", TARGET))
    return tuple(elements)


def _box32(box: Sequence[float]) -> tuple[float, float, float, float]:
    y, x, height, width = (float(np.float32(value)) for value in box)
    return y, x, height, width


def case_rows(cases: Sequence[dict]) -> Iterator[Prediction]:
    for number, case in enumerate(cases):
        dialect, gold, size = case["dialect"], case["gold"], case["screen"]
        width, height = size["width"], size["height"]
        if "action" in gold:
            types = dialect != _LETTERS or gold["action"]["action_type"] != "input_text"
            expected = gold_of_android_control(gold["action"], width, height, types)
        else:
            expected = gold_of_odyssey(gold["odyssey"] if "odyssey" in gold else gold["text"])
        predicted, box = plain(case["action"]) if "action" in case else None, None
        if dialect == "uground":
            predicted, box = _of_uground(case["prediction"], width, height)
        elements = _elements(dialect, gold, width, height)
        prompt = gold.get("prompt", "")
        yield _row(str(number), 0, 1, expected, predicted, elements, box, (height, width), prompt)


def _row(episode: str, step: int, length: int, gold: Action, predicted: Action | None, elements: tuple, *rest: Any):
    box, size, instruction = rest
    return Prediction(
        episode, "golden", "", step, length, gold, elements, "", predicted, box=box, size=size, instruction=instruction
    )


def dialects(files: Sequence[str]) -> int:
    """Every case whose verdict follows from the actions and that is not a slip of the published code. Points are
    float32, and rows go through a predictions file."""
    compared, different, left = 0, 0, {}
    for name in files:
        cases = read(name)
        for case in cases:
            if not case.get("by_action") or case.get("error"):
                reason = case.get("error") or "depends on letters that an action does not keep"
                left[reason] = left.get(reason, 0) + 1
        cases = [case for case in cases if case.get("by_action") and not case.get("error")]
        for case, found in zip(cases, _judged(cases), strict=True):
            compared += 1
            expected = {key: case["theirs"][key] for key in found}
            if found != expected:
                different += 1
                print(f"{name}: {case['id']} ({case['group']}): published {expected}, here {found}")
    for reason, count in sorted(left.items()):
        print(f"not compared: {count} cases ({reason})")
    print(f"{compared:,} compared, {different:,} different")
    return int(different > 0 or not compared)


def _judged(cases: Sequence[dict]) -> list[dict[str, bool]]:
    names = {case["dialect"] for case in cases}
    if len(names) > 1:
        raise ValueError(f"one file has cases of {', '.join(sorted(names))}")
    found = []
    for ruling in _rulings(case_rows(cases), names):
        columns = ruling.same_kind.tolist(), ruling.right.tolist(), ruling.counted.tolist()
        found += [dict(zip(("type", "exact", "counted"), row, strict=True)) for row in zip(*columns, strict=True)]
    return found


def _rulings(rows: Iterator[Prediction], names: Iterator[str]) -> Iterator:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.parquet"
        write_predictions(path, rows)
        for table in step_tables(path):
            for name in names:
                yield DIALECTS[name].judge(table)


def whole_set(agent: str, totals: str) -> int:
    """The counts of every dialect over all steps of one agent, and the verdict on each step."""
    steps = read(agent)
    expected = json.loads(Path(totals).read_text(encoding="utf-8"))["dialects"]
    different = 0
    for name, counts in expected.items():
        rulings = list(_rulings(_steps(steps, name), [name]))
        right, same_kind, counted, has_kind = (
            np.concatenate([getattr(one, field) for one in rulings])
            for field in ("right", "same_kind", "counted", "has_kind")
        )
        found = {"steps": counted.sum(), "exact": (right & counted).sum(), "type": (same_kind & has_kind).sum()}
        found["type steps"] = has_kind.sum()
        shown = {key: (counts[key], int(value)) for key, value in found.items() if key in counts}
        wrong = {key: pair for key, pair in shown.items() if pair[0] != pair[1]}
        different += len(wrong)
        for key, (published, here) in wrong.items():
            print(f"{name}, {key}: published {published}, here {here}")
        for step, *ours in zip(steps, right, same_kind, counted, strict=True):
            letters = step["verdicts"].get(name)
            if letters is not None and _is_different(letters, *ours):
                different += 1
                print(f"{name}, episode {step['episode']}, step {step['step']}: published {letters}, here {ours}")
    print(f"{len(expected)} dialects over {len(steps):,} steps compared, {different:,} different")
    return int(different > 0)


def _is_different(letters: str, right: bool, same_kind: bool, counted: bool) -> bool:
    if len(letters) == 2:
        return letters != ("-" if not counted else "e" if right else "n") + ("t" if same_kind else "w")
    if letters == "-" or not counted:
        return (letters == "-") == counted
    return not right if letters == "e" else right or same_kind != (letters == "t")


def _steps(steps: Sequence[dict], dialect: str) -> Iterator[Prediction]:
    lengths: dict[int, int] = {}
    for step in steps:
        lengths[step["episode"]] = lengths.get(step["episode"], 0) + 1
    kept = "tree" if dialect in ("agentcpm_ac", "guievalkit") else "boxes"
    for step in steps:
        width, height, episode = step["width"], step["height"], step["episode"]
        gold = gold_of_android_control(step["gold"], width, height, dialect != _LETTERS or episode % 2 == 1)
        elements = _elements(dialect, {kept: step.get(kept, ())}, width, height)
        about = str(episode), step["step"], lengths[episode]
        yield _row(*about, gold, plain(step["action"]), elements, None, (height, width), "")


def main(arguments: Sequence[str]) -> int:
    name, *rest = arguments or [""]
    if name in ("android_control", "damaged") and len(rest) == 1:
        import agents_2025_data

        return getattr(agents_2025_data, name)(rest[0])
    if name == "languages" and rest:
        import agents_2025_languages

        return agents_2025_languages.languages(rest)
    if name == "dialects" and rest:
        return dialects(rest)
    if name == "whole_set" and len(rest) == 2:
        return whole_set(*rest)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
