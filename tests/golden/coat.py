"""Compares the scoring of Android in the Zoo here with verdicts and scores of CoAT's published evaluator.

    python tests/golden/coat.py CASES METRICS

CASES holds a JSON object a line, plain or gzip-compressed: `size` [height, width] of the screen in pixels, `gold` a
step as AitZ's files have it, `mode` (`tag`: elements by index), `said` an answer in the call form, and two verdicts,
`published` and `gold_point`, the same with the gold point of clicks set. METRICS is a JSON object: `rows_of_episodes`,
and the `atomic` and `episode` scores of the verdicts `gold_point`.

Prints each difference and a line per file; the exit status is 1 if anything differs or a file has nothing to compare.

Clicks, texts and shares are computed by `scoring/aitz/`. What only the published evaluator does is here: it takes the
type of an action from the first word of its description, rounds boxes to pixels, never takes index 0, lets an empty
text match any, and in its first form compares clicks with (0, 0). Where it raises an exception (`press` without a
button, a box of three numbers, a screen without elements), the answer is wrong here.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from functools import cmp_to_key, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []

from vlm_agent.episodes import ACTION_NAMES  # noqa: E402
from vlm_agent.evaluation.scoring.aitz.metrics import KINDS, aitz_quotients  # noqa: E402
from vlm_agent.evaluation.scoring.aitz.rules import boxes_match, text_ratio, texts_match  # noqa: E402
from vlm_agent.evaluation.scoring.judged import JudgedSteps  # noqa: E402
from vlm_agent.evaluation.scoring.steps import UNPARSED_NAME  # noqa: E402

Verdict = dict[str, Any]
Box = list[float]
"""[left, top, right, bottom] in pixels."""

SEARCH_ORDER = ("click", "scroll", "type", "press", "stop")
BUTTONS = ("enter", "back", "home")
NAMES = {"click": "tap", "scroll": "swipe", "type": "type", "press": "back", "stop": "complete"}
"""For each type, an action of it in `ACTION_NAMES`."""

VERDICTS = {"published": False, "gold_point": True}
"""Key of a verdict → whether the gold point of clicks is set."""


def kind_of(name: Any) -> str | None:
    """The type of action that a name contains; None without one."""
    name = name.lower() if isinstance(name, str) else ""
    return "type" if name == "input" else next((kind for kind in SEARCH_ORDER if kind in name), None)


def gold_kind(gold: dict[str, Any]) -> str | None:
    return kind_of(gold["coat_action_desc"].split(" ")[0])


def verdict(case: dict[str, Any], gold_point: bool) -> Verdict:
    gold, answer = case["gold"], case["said"] or {}
    arguments = answer.get("ARGS")
    arguments = arguments if isinstance(arguments, dict) else {}
    kind = kind_of(answer.get("ACTION"))
    same = kind is not None and kind == gold_kind(gold)
    exact, ratio = False, None
    if same and kind == "click":
        exact = click_is_right(case, arguments, gold_point)
    elif same and kind == "scroll":
        exact = arguments.get("direction") == gold["coat_action_desc"].split(" ")[1].strip()
    elif same and kind == "type":
        exact, ratio = typed(gold["result_action_text"], arguments.get("text", ""))
    elif same and kind == "press":
        exact = button(answer["ACTION"]) == next((b for b in BUTTONS if b in gold["coat_action_desc"]), "")
    elif same:
        exact = True
    return {"format_hit": kind is not None, "type_match": same, "exact_match": exact, "text_ratio": ratio}


def typed(gold: str, text: Any) -> tuple[bool, float | None]:
    if not isinstance(text, str):
        return False, None
    return not text or not gold or texts_match(gold, text), text_ratio(text, gold)


def button(name: str) -> str | None:
    parts = name.split("_")
    return parts[1].lower() if len(parts) > 1 else None


def click_is_right(case: dict[str, Any], arguments: dict[str, Any], gold_point: bool) -> bool:
    height, width = case["size"]
    elements = in_rows([[x, y, x + w, y + h] for y, x, h, w in case["gold"]["ui_positions"]])
    box = answered_box(arguments, width, height)
    index = answered_index(arguments) if case["mode"] == "tag" else 0
    if index and 0 <= index < len(elements):
        box = elements[index]
    if not box or not elements:
        return False
    y, x = json.loads(case["gold"]["result_touch_yx"]) if gold_point else (0, 0)
    point = np.array([[int(x * width), int(y * height)]], float)
    rows = np.zeros(len(elements), int)
    return bool(boxes_match(np.array([box], float), point, np.array(elements, float), rows)[0])


def answered_box(arguments: dict[str, Any], width: int, height: int) -> Box | None:
    """The box of an answer, which is in thousandths, rounded to pixels."""
    box = arguments.get("bbox")
    if not isinstance(box, list) or len(box) < 4 or not all(isinstance(value, int | float) for value in box[:4]):
        return None
    return [round(value / 1000 * side) for value, side in zip(box[:4], (width, height) * 2, strict=True)]


def answered_index(arguments: dict[str, Any]) -> int:
    """The index of an answer; 0, which selects no element, if it is none."""
    try:
        return int(arguments.get("idx") or 0)
    except (TypeError, ValueError, OverflowError):
        return 0


def in_rows(boxes: list[Box]) -> list[Box]:
    """Elements in the order of their numbers: rows from the top, each from the left.

    An element continues a row if the mean centre of the row lies within its height, and its own centre within that of
    the row's last element.
    """
    rows: list[list[Box]] = []
    for box in sorted(boxes, key=cmp_to_key(order)):
        if rows and box[1] < np.mean([centre(other) for other in rows[-1]]) < box[3]:
            last = rows[-1][-1]
            if last[1] < centre(box) < last[3]:
                rows[-1].append(box)
                continue
        rows.append([box])
    return [box for row in rows for box in sorted(row, key=lambda box: box[0])]


def centre(box: Box) -> float:
    return (box[1] + box[3]) / 2


def order(first: Box, second: Box) -> int:
    """Negative if `first` precedes: it is above the centre of the other, or neither is and it is further left."""
    upper, lower = (second, first) if first[1] > second[1] else (first, second)
    if first[1] != second[1] and lower[1] > centre(upper):
        return 1 if lower is first else -1
    return int(np.sign(first[0] - second[0]))


def scores(cases: list[dict[str, Any]], verdicts: list[Verdict], episodes: list[list[int]]) -> dict[str, Any]:
    """The published evaluator's atomic and episode scores; None where a kind of action has no gold step."""
    rows = [row for episode in episodes for row in episode]
    lengths = np.array([len(episode) for episode in episodes])
    gold = [gold_kind(cases[row]["gold"]) for row in rows]
    steps = SimpleNamespace(
        lengths=lengths,
        episode=np.repeat(np.arange(len(episodes)), lengths),
        step=np.concatenate([np.arange(length) for length in lengths]),
        gold=SimpleNamespace(name=names(gold)),
        predicted=names([kind_of((cases[row]["said"] or {}).get("ACTION")) for row in rows]),
    )
    steps.count = partial(JudgedSteps.count, steps)
    right = np.array([verdicts[row]["exact_match"] for row in rows])
    shares = {name: rounded(*sums) for name, sums in aitz_quotients(steps, right).items()}
    ratios = [verdicts[row]["text_ratio"] for row in rows if verdicts[row]["text_ratio"] is not None]
    atomic = {kind.upper(): {"type_acc": shares[f"{kind}_type"], "exact_acc": shares[kind]} for kind in KINDS}
    if ratios:
        atomic["TYPE"]["text_dist"] = round(sum(ratios) / len(ratios), 4)
    totals = {"hit_rate": "hit_rate", "type_acc": "total_type", "exact_acc": "total"}
    return {
        "atomic": {"total": {name: shares[ours] for name, ours in totals.items()}, **atomic},
        "episode": {"success_rate": shares["success"], "goal_progress": shares["goal_progress"]},
    }


def names(kinds: list[str | None]) -> np.ndarray:
    return np.array([UNPARSED_NAME if kind is None else ACTION_NAMES.index(NAMES[kind]) for kind in kinds])


def rounded(added: np.ndarray, possible: np.ndarray) -> float | None:
    return round(float(added.sum() / possible.sum()), 4) if possible.sum() else None


def differences(where: str, expected: Any, actual: Any) -> Iterator[str]:
    """A line for each leaf that differs, or that only one side has."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in {**expected, **actual}:
            yield from differences(f"{where} {name}", expected.get(name), actual.get(name))
    elif expected != actual:
        yield f"{where}: published {expected!r}, here {actual!r}"


def read_text(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()


def compare(cases_path: Path, metrics_path: Path) -> Iterator[tuple[str, bool]]:
    """(text, whether everything agrees) of each file."""
    cases = [json.loads(line) for line in read_text(cases_path).splitlines() if line.strip()]
    expected = json.loads(read_text(metrics_path))
    found: dict[str, list[Verdict]] = {name: [verdict(case, set_) for case in cases] for name, set_ in VERDICTS.items()}
    lines = [
        line
        for number, case in enumerate(cases)
        for name in VERDICTS
        if name in case
        for line in differences(f"case {number} ({name})", case[name], found[name][number])
    ]
    compared = {name: sum(name in case for case in cases) for name in VERDICTS}
    counts = " and ".join(f"{count} {name}" for name, count in compared.items())
    summary = f"{cases_path}: {counts} verdicts compared, {len(lines)} different"
    yield "\n".join([*lines, summary]), compared["gold_point"] > 0 and not lines

    episodes = expected["rows_of_episodes"]
    lines = list(
        differences(
            "", {key: expected[key] for key in ("atomic", "episode")}, scores(cases, found["gold_point"], episodes)
        )
    )
    yield (
        "\n".join([*lines, f"{metrics_path}: scores of {len(episodes)} episodes compared, {len(lines)} different"]),
        bool(episodes) and not lines,
    )


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__)
        return 2
    agrees = True
    for text, is_same in compare(*map(Path, arguments)):
        print(text, flush=True)
        agrees &= is_same
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
