"""Compares Auto-UI here with outputs of its published code, in files of any number.

    python tests/golden/auto_ui.py FILE…

Prints each difference and a line per file; the exit status is 1 if anything differs. Formats, by content:

- JSON, a list of rows: source and target strings of the steps of one real episode (`tests/data/auto_ui`), each row with
  its setting;
- JSON, an object with `episodes` and `settings`: the same for the episodes in the file. Either may be gzip-compressed;
- safetensors: logits and losses of the published model (auto_ui_model.py).
"""

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(path) for path in (ROOT, ROOT / "tests") if str(path) not in sys.path]

from helpers.data.step_ids import source_text, target_text  # noqa: E402

from vlm_agent.action_languages import language_settings  # noqa: E402
from vlm_agent.episodes import Action, ActionKind, Episode, Step, UiElement  # noqa: E402
from vlm_agent.sentences.steps import StepSentences  # noqa: E402

REAL_EPISODE = ROOT / "tests/data/auto_ui/episode.json"


def episode_of(content: dict[str, Any]) -> Episode:
    """An episode of the JSON format, without pixels."""
    steps = tuple(Step(None, _action(step), tuple(map(_element, step["elements"]))) for step in content["steps"])
    return Episode(str(content["id"]), "made", content["goal"], steps)


def _action(step: dict[str, Any]) -> Action:
    return Action(ActionKind[step["action_type"]], tuple(step["touch_yx"]), tuple(step["lift_yx"]), step["text"])


def _element(content: dict[str, Any]) -> UiElement:
    return UiElement(tuple(content["box"]), content["text"], content["type"])


def strings(setting: dict[str, Any], episode: Episode) -> list[tuple[str, str]]:
    """(source, target) of each step."""
    language = language_settings({"name": "auto_ui", "normalised": setting["normalise_gestures"]}).build()
    sentences = StepSentences(
        None,  # the texts do not depend on a tokenizer
        language,
        setting["history"],
        setting["future"],
        setting["screen_description"],
    )
    return [
        (
            source_text(sentences, episode.goal, episode.steps[:number], step.screen),
            target_text(sentences, episode.steps[number:]),
        )
        for number, step in enumerate(episode.steps)
    ]


class Comparison:
    """Counts and differences of one file."""

    def __init__(self) -> None:
        self.compared = 0
        self.differences: list[str] = []

    def compare(self, where: str, expected: Any, actual: Any) -> None:
        self.compared += 1
        if expected != actual:
            self.differences.append(f"{where}:\n  published {expected!r}\n  here      {actual!r}")


_SETTING = ("history", "future", "normalise_gestures", "screen_description")


def _named(setting: dict[str, Any]) -> str:
    return " ".join(f"{name}={setting[name]}" for name in _SETTING)


def compare_rows(rows: list[dict[str, Any]]) -> Comparison:
    episode, comparison = episode_of(json.loads(REAL_EPISODE.read_text(encoding="utf-8"))), Comparison()
    for row in rows:
        source, target = strings(row, episode)[row["step"]]
        where = f"{_named(row)} step {row['step']}"
        comparison.compare(f"{where} source", row["source"], source)
        comparison.compare(f"{where} target", row["target"], target)
    return comparison


def compare_episodes(content: dict[str, Any]) -> Comparison:
    comparison = Comparison()
    for setting in content["settings"]:
        for episode, expected in zip(content["episodes"], setting["strings"], strict=True):
            steps = zip(expected, strings(setting, episode_of(episode)), strict=True)
            for number, (published, ours) in enumerate(steps):
                where = f"{_named(setting)} episode {episode['id']} step {number}"
                for name, one, other in zip(("source", "target"), published, ours, strict=True):
                    comparison.compare(f"{where} {name}", one, other)
    return comparison


def read_json(path: Path) -> Any:
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


def compare_json(path: Path) -> Comparison:
    parsed = read_json(path)
    return compare_rows(parsed) if isinstance(parsed, list) else compare_episodes(parsed)


def compare_model(path: Path) -> Comparison:
    from auto_ui_model import TOLERANCE, model_differences  # imports torch

    comparison = Comparison()
    for what, difference in model_differences(path).items():
        comparison.compared += 1
        print(f"{path}: {what}: largest difference {difference:.2g}")
        if not difference <= TOLERANCE:  # NaN, too
            comparison.differences.append(f"{what} differ by up to {difference:.2g}; {TOLERANCE:g} is accepted")
    return comparison


FORMATS: dict[str, Callable[[Path], Comparison]] = {
    ".json": compare_json,
    ".gz": compare_json,
    ".safetensors": compare_model,
}
"""Last suffix of a file's name → its comparison."""


def report(paths: list[Path]) -> Iterator[tuple[str, bool]]:
    """(text, whether everything agrees) of each file."""
    for path in paths:
        if path.suffix not in FORMATS:
            yield f"{path}: unknown format {path.suffix}; known are {', '.join(FORMATS)}", False
            continue
        result = FORMATS[path.suffix](path)
        summary = f"{path}: {result.compared} compared, {len(result.differences)} different"
        yield "\n".join([*result.differences, summary]), bool(result.compared) and not result.differences


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    agrees = True
    for text, is_same in report([Path(argument) for argument in arguments]):
        print(text, flush=True)
        agrees &= is_same
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
