"""What an output folder contains: evaluations, traces, comparisons and training runs, with headline figures.

Only files inside the folder are listed and read; symbolic links are not followed. A file that cannot be read is listed
with the reason instead of its figures.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from vlm_agent.agents import AgentSettings
from vlm_agent.agents.controls import CONTROLS
from vlm_agent.agents.loading import agent_settings
from vlm_agent.datasets.sources.traces import HEADING, read_trace
from vlm_agent.drawing.contact_sheet import outcomes_in_words
from vlm_agent.errors import UserError
from vlm_agent.evaluation.about import names_in_tables
from vlm_agent.evaluation.offline.plan import predictions_name, recorded_name
from vlm_agent.evaluation.online.runs import BASELINES, RESULT
from vlm_agent.evaluation.report.terminal import failed_steps
from vlm_agent.files import read_checked
from vlm_agent.files.pages import words
from vlm_agent.models.run_layout import RECIPE_FILE as RECIPE
from vlm_agent.models.run_layout import trained
from vlm_agent.training.run_folder.status import read_status

MOST_ENTRIES = 500
"""The limit of a page; an online evaluation has one trace per task and run."""

_DEPTH = 6
_REMEDY = "run the command that wrote it again"
_PAGES, _PICTURES = (".html",), (".svg", ".gif", ".png")

MOST_PICTURES = 6
"""Pictures of an entry; a folder of screens has thousands."""


@dataclass(frozen=True)
class CatalogueEntry:
    """A folder with something to see. `path`: relative to the viewed folder, `.` for itself. `figures`: the headline,
    of one or several lines. `pages`: names of its pages. `pictures`: names of its first pictures, of a trace its last
    screen. `success`: of a task that a trace is of; None if that is not recorded."""

    path: str
    kind: str
    figures: str
    pages: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()
    success: bool | None = None

    @property
    def parent(self) -> str:
        return Path(self.path).parent.as_posix()


def entries_in(root: Path) -> list[CatalogueEntry]:
    """The first `MOST_ENTRIES` entries, by path; the traces of an agent come before those of its controls, and these
    before those of the baselines."""
    every = (entry for folder, names in _folders(root) for entry in _entries(root, folder, names))
    return list(islice(every, MOST_ENTRIES))


def _entries(root: Path, folder: Path, names: Sequence[str]) -> Iterator[CatalogueEntry]:
    path = folder.relative_to(root).as_posix()
    kinds = [(kind, figures) for name, kind, figures in KINDS if name in names]
    pictures = [name for name in names if name.endswith(_PICTURES)]
    if any(kind == TRACE for kind, _ in kinds):
        yield CatalogueEntry(path, TRACE, _read(_trace, folder), (), tuple(pictures[-1:]), success_of(folder))
        return
    pages = tuple(name for name in names if name.endswith(_PAGES))
    if not kinds and (pages or pictures):
        kinds = [("page" if pages else "pictures", lambda _: "")]
    for number, (kind, figures) in enumerate(kinds):
        shown = () if number else (pages, tuple(pictures[:MOST_PICTURES]))
        yield CatalogueEntry(path, kind, _read(figures, folder), *shown)


def first_agent(root: Path) -> AgentSettings | None:
    """The settings of the first finished training run in the folder, by path, whose recipe can be read."""
    for folder, names in _folders(root):
        if RECIPE in names:
            with suppress(FileNotFoundError, UserError):
                trained(folder)
                return agent_settings(str(folder))
    return None


def _folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every folder, with the names of its regular files."""
    for place, folders, names in os.walk(root, followlinks=False):
        folder = Path(place)
        is_deepest = len(folder.relative_to(root).parts) >= _DEPTH
        folders[:] = [] if is_deepest else sorted((name for name in folders if not name.startswith(".")), key=_rank)
        yield folder, sorted(name for name in names if not (folder / name).is_symlink())


def _rank(name: str) -> tuple[int, str]:
    """Runs of an online evaluation are folders beside each other."""
    return (name in CONTROLS) + 2 * (name in BASELINES), name


def _read(figures: Callable[[Path], str], folder: Path) -> str:
    try:
        return figures(folder)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return f"cannot be read: unexpected content ({type(error).__name__}: {error})"
    except (UserError, OSError) as error:
        return f"cannot be read: {error}"


def _evaluation(folder: Path) -> str:
    runs: dict[str, Any] = read_checked(folder / "metrics.json", _REMEDY)
    lines = ["partial match, official and strict"]
    for run, scores in runs.items():
        scorers = [scores[scorer]["overall"] for scorer in ("official", "strict") if scorer in scores]
        if scorers:
            name = recorded_name(folder / predictions_name(run)) or words(run)
            failed = len(failed_steps(scores))
            note = f" ({failed:,} failed step(s), counted as wrong)" if failed else ""
            lines.append(f"{name}: " + ", ".join(map(_share, scorers)) + note)
    return "\n".join(lines)


def _share(overall: Mapping[str, Any]) -> str:
    if overall["partial_match"] is None:
        return "–"
    interval = overall["interval"]
    shown = "" if interval is None else f" [{interval[0]:.1f}, {interval[1]:.1f}]"
    return f"{overall['partial_match']:.1f} %{shown}"


def _online(folder: Path) -> str:
    content = read_checked(folder / "online.json", _REMEDY)
    names = names_in_tables(content["runs"], content["about"]["label"])
    overall = {name: content["runs"][run]["overall"] for run, name in names.items()}
    return "\n".join(
        ["success", *(f"{name}: {score['successes']} of {score['tasks']}" for name, score in overall.items())]
    )


def _comparison(folder: Path) -> str:
    content = read_checked(folder / "comparison.json", _REMEDY)
    return f"{content['name']}: {len(content['agents'])} agents ({', '.join(content['agents'])})"


def _run(folder: Path) -> str:
    status = read_status(folder)
    parts = [status.state]
    if status.step is not None:
        parts.append(f"step {status.step} of {status.steps}")
    if status.loss is not None:
        parts.append(f"loss {status.loss:.3f}")
    return ", ".join(parts)


def _trace(folder: Path) -> str:
    trace = read_trace(folder)
    return f"{trace.heading.goal}\n{trace.ending}\n{outcomes_in_words(trace)}\n{trace.heading.agent}"


def success_of(folder: Path) -> bool | None:
    """Whether the task of a trace succeeded; None without a result, if its judge failed, and where it is damaged, which
    `evaluate` reports."""
    path = folder / RESULT
    if not path.is_file() or path.is_symlink():
        return None
    try:
        success = read_checked(path, _REMEDY, dict[str, Any])["success"]
        return None if success is None else bool(success)
    except (UserError, KeyError):
        return None


TRACE = "trace"

KINDS: tuple[tuple[str, str, Callable[[Path], str]], ...] = (
    ("comparison.json", "comparison", _comparison),
    ("metrics.json", "evaluation", _evaluation),
    ("online.json", "online evaluation", _online),
    (RECIPE, "training run", _run),
    (HEADING, TRACE, _trace),
)
"""The file by which a folder is recognised, its kind, and how its headline is read."""
