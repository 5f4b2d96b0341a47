"""AndroidControl's shards, read by `convert` and compared with their published content; and damaged shards.

`android_control(folder)`: a folder with shards, `splits.json`, `test_subsplits.json`, and `expected.json`, which has
every action, instruction, box and node of the episodes. `damaged(folder)`: shards, all but some of them damaged.
"""

import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.selection import read_splits
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import HIDDEN, NOT_SHOWN, WINDOW, Action, ActionKind, Episode, Step, UiElement
from vlm_agent.evaluation.benchmark import read_groups

_CONTENT = {"up": "down", "down": "up", "left": "right", "right": "left"}
_PLAIN = {ActionKind.PRESS_BACK: "navigate_back", ActionKind.PRESS_HOME: "navigate_home", ActionKind.WAIT: "wait"}


def android_control(folder: Path) -> int:
    """Prints every difference between the shards and `expected.json`; 1 if there is one."""
    compared, different = 0, 0
    for what, found, wanted in _compared(Path(folder)):
        compared += 1
        if found != wanted:
            different += 1
            print(f"{what}: {found!r}, expected {wanted!r}")
    print(f"{compared} compared, {different} different")
    return int(different > 0 or compared == 0)


def damaged(folder: Path) -> int:
    """Converts each file alone and all together; 1 for a crash, a reason without words, or an episode that is lost in
    company."""
    failures, alone = 0, set()
    files = sorted(path for path in Path(folder).iterdir() if path.is_file())
    for path in files:
        read, reasons = _tried([path])
        print(f"{path.name}: {'crashed: ' if read is None else ''}{_words(read, reasons)}")
        failures += read is None or not all(reasons) or not (read or reasons)
        alone |= set(read or {})
    together, reasons = _tried(files)
    lost = sorted(alone - set(together or {}))
    print(f"all together: {_words(together, reasons)}")
    for episode in lost:
        print(f"episode {episode} is lost in company")
    return int(failures > 0 or together is None or not all(reasons) or bool(lost))


def _words(read: dict[str, int] | None, reasons: list[str]) -> str:
    steps = [] if read is None else [f"{sum(read.values())} step(s) of {len(read)} episode(s)"]
    return "; ".join([*steps, *dict.fromkeys(reasons)])


def _tried(files: list[Path]) -> tuple[dict[str, int] | None, list[str]]:
    """The steps of each episode that was read, None after a crash; and the reasons of the quarantine, or the crash."""
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary, "out")
        try:
            convert("androidcontrol", files, output, console=Console(file=io.StringIO()), workers=1)
            shards = ShardDataset(output)
            read = {row["episode_id"]: len(row["steps"]) for row in (shards.row(at) for at in range(len(shards)))}
            lines = (output / "quarantine.jsonl").read_text().splitlines()
        except Exception as error:  # noqa: BLE001 (any exception is a crash)
            return None, [f"{type(error).__name__} {error}"]
        return read, [json.loads(line)["reason"] for line in lines]


def _compared(folder: Path) -> Iterator[tuple[str, object, object]]:
    """What is compared, what `convert` stores, and what is expected."""
    with tempfile.TemporaryDirectory() as temporary:
        output, splits, groups = Path(temporary, "out"), folder / "splits.json", folder / "test_subsplits.json"
        files = sorted(folder.glob("android_control-*"))
        convert(
            "androidcontrol",
            files,
            output,
            [splits],
            Console(file=io.StringIO()),
            workers=1,
            groups=read_groups(groups),
        )
        shards = ShardDataset(output)
        stored = {episode.id: (episode, at) for at, episode in enumerate(shards)}
        wanted = json.loads((folder / "expected.json").read_text())
        yield "episodes", sorted(stored), sorted(str(one["episode_id"]) for one in wanted)
        for one in wanted:
            name = str(one["episode_id"])
            if name in stored:
                episode, at = stored[name]
                yield f"{name}: split", shards.row(at)["split"], read_splits([splits]).split_of(name)
                yield from _of_episode(episode, one)
        listed = {name: sorted(map(str, ids)) for name, ids in json.loads(groups.read_text()).items()}
        yield "groups", {name: sorted(ids) for name, ids in read_groups(output / "groups.json").items()}, listed


def _of_episode(episode: Episode, wanted: dict) -> Iterator[tuple[str, object, object]]:
    yield f"{episode.id}: goal", episode.goal, wanted["goal"]
    yield f"{episode.id}: screens", len(episode), wanted["screens"]
    for number, step in enumerate(episode.steps):
        where, size = f"{episode.id}, step {number}", (wanted["height"], wanted["width"])
        yield f"{where}: size", step.size, size
        yield f"{where}: pixels", step.screenshot.shape[:2], size
        if number < len(wanted["steps"]):
            listed = wanted["steps"][number]
            yield f"{where}: action", _published(step.action, *size), listed["action"]
            yield f"{where}: instruction", step.instruction, listed["instruction"]
        else:
            yield f"{where}: action", step.action, Action.complete()
            yield f"{where}: instruction", step.instruction, ""
        tree = step.tree or ()
        yield f"{where}: boxes", [_pixels(element, *size) for element in tree], wanted["boxes_in_order"][number]
        nodes = [element for element in tree if element.type != WINDOW]
        yield (
            f"{where}: nodes",
            [_node(element, *size) for element in nodes],
            [_wanted_node(node) for node in wanted["nodes"][number]],
        )
        yield f"{where}: shown", len(step.elements), _shown(step)


def _shown(step: Step) -> int:
    return sum(element.type not in NOT_SHOWN and min(element.box[2:]) > 0 for element in step.tree or ())


def _pixels(element: UiElement, height: int, width: int) -> list[int]:
    y, x, tall, wide = element.box
    return [round(x * width), round(y * height), round((x + wide) * width), round((y + tall) * height)]


def _node(element: UiElement, height: int, width: int) -> tuple:
    return _pixels(element, height, width), element.type != HIDDEN, element.text


def _wanted_node(node: dict) -> tuple:
    return node["box"], node["visible"], node["text"] or node["description"] or node["hint"]


def _published(action: Action, height: int, width: int) -> dict:
    """The action as AndroidControl writes it."""
    if action.is_touch:
        y, x = action.touch_yx
        kind = "click" if action.is_tap else "long_press"
        return {"action_type": kind, "x": round(x * width), "y": round(y * height)}
    if action.direction is not None:
        return {"action_type": "scroll", "direction": _CONTENT[action.direction]}
    if action.kind is ActionKind.TYPE:
        return {"action_type": "input_text", "text": action.text}
    if action.kind is ActionKind.OPEN_APP:
        return {"action_type": "open_app", "app_name": action.text}
    return {"action_type": _PLAIN.get(action.kind, action.name)}
