"""Widgets and texts read from pixels: detection by kind, beside a baseline without a model.

    python -m studies.screens [--widgets NAME …] [--output DIR] [--quick]

collages    held-out collages of widgets (shipped_weights/screens); every kind is frequent
phones      pages of held-out simulated phones
browser     pages of the browser phone with the truth of their DOM, where Chromium is installed: drawn by other code
annotated   21 real screens (../shared/data/annotated_screens, or --annotated DIR). Their boxes are the areas that react
            to touches, not what is drawn: the column ink is the share of boxes whose own ink reaches IoU 0.5 with them,
            the ceiling of a detector of what is drawn. Much of what is drawn is not listed, so precision says little.
            Elements with a text are `text`, all others are widgets. Nothing is tuned to these screens.
recall, precision   pairs of one kind with an IoU of at least 0.5; in the row `any`, of any kinds
located     true boxes in a pair of any kinds. `edges` knows no kinds: this and centre are its figures by kind
centre      true boxes that hold the centre of any found box
state       of the pairs with a state, those with the right one
read, similar   true texts read within their box: equal but for case and spaces; at least 80 % alike

Texts are read by RapidOCR and cached by the picture's digest in OUTPUT/texts. Every screen is a line of
OUTPUT/results.jsonl; the same command resumes. The figures of detectors are also in --records, except those of
--quick. The last line of output is JSON, and OUTPUT/figures.json.
"""

import argparse
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from studies.ablation.records import Records
from studies.screens.counts import figures, of_texts, of_widgets
from studies.screens.screens import Shown, annotated, browser, drawn
from vlm_agent.devices.browser.chromium import NoBrowserError
from vlm_agent.files import write_json
from vlm_agent.files.console import make_console, new_table
from vlm_agent.screens.text import RapidOcrSettings
from vlm_agent.screens.widgets import read_widgets
from vlm_agent.screens.widgets.tiny import SHA256

ANNOTATED = Path(__file__).resolve().parents[3] / "shared/data/annotated_screens"
OUTPUT = Path("runs/benchmarks/screens")
LARGE = ((960, 432), (1200, 540))
"""Sizes of the drawn screens whose texts are read: at 208 pixels of width they are 8 pixels high."""

Screens = Iterator[Callable[[], Shown]]


def parts(options: argparse.Namespace, stack: ExitStack) -> dict[str, Screens]:
    few = 20 if options.quick else options.screens
    result = {part: drawn(part, few) for part in ("collages", "phones")}
    try:
        result["browser"] = iter(list(browser(6 if options.quick else options.pages, stack)))
    except NoBrowserError as error:
        print(f"browser: {error}")
    if options.annotated.is_dir():
        result["annotated"] = annotated(options.annotated)
    return result


def text_parts(options: argparse.Namespace) -> dict[str, Screens]:
    result = {"phones at a real size": drawn("phones", 3 if options.quick else options.texts, LARGE)}
    if options.annotated.is_dir():
        every = list(annotated(options.annotated))
        result["annotated"] = iter(every[:3] if options.quick else every)
    return result


def identity(name: str) -> str:
    """The detector in the results: with the digest of its weights, so that two of them are never mixed."""
    kind, _, path = name.partition(":")
    digest = (
        hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else {"phone_widgets_tiny": SHA256}.get(kind, "")
    )
    return f"{name} {digest[:12]}".strip()


class Results:
    """The lines of results.jsonl: (part, what read it, number of the screen) → counts and seconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.rows: dict[tuple[str, str, int], dict[str, Any]] = {}
        for line in lines:
            try:
                key, row = json.loads(line)
                self.rows[tuple(key)] = row
            except ValueError:  # a killed run cut it; the screen is measured again
                path.write_text("".join(f"{line}\n" for line in lines[:-1]), encoding="utf-8")

    def add(self, key: tuple[str, str, int], row: dict[str, Any]) -> None:
        self.rows[key] = row
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps([key, row])}\n")

    def sums(self, part: str, reader: str, screens: int) -> dict[str, Any]:
        rows = [row for (a, b, number), row in self.rows.items() if (a, b) == (part, reader) and number < screens]
        total: Counter[str] = Counter()
        for row in rows:
            total.update(row["counts"])
        seconds = sum(row["seconds"] for row in rows) / max(1, len(rows))
        of_any = {name: total[f"any/{name}"] for name in ("truth", "predicted", "right")}
        return {"screens": len(rows), "seconds": round(seconds, 3), "kinds": figures(total), "any": of_any}


@dataclass(frozen=True)
class Reader:
    """`read` finds things in pixels, `count` compares them with the truth."""

    name: str
    read: Callable[[np.ndarray], Sequence[Any]]
    count: Callable[[Shown, Sequence[Any]], dict[str, int]]


def measure(results: Results, part: str, screens: Screens, readers: Sequence[Reader]) -> dict[str, Any]:
    """Every screen of a part by every reader, except those that the results have."""
    every = list(screens)
    missing = [
        number
        for number in range(len(every))
        if any((part, reader.name, number) not in results.rows for reader in readers)
    ]
    start = printed = time.monotonic()
    for done, number in enumerate(missing, 1):
        shown = every[number]()
        for reader in readers:
            if (part, reader.name, number) not in results.rows:
                before = time.process_time()
                found = reader.read(shown.pixels)
                seconds = time.process_time() - before
                counts = reader.count(shown, found)
                results.add((part, reader.name, number), {"counts": counts, "seconds": round(seconds, 4)})
        if time.monotonic() - printed > 10:
            printed = time.monotonic()
            left = (printed - start) / done * (len(missing) - done)
            print(f"{part}: {done} of {len(missing)} screens, ETA {left:.0f} s", flush=True)
    return {reader.name: results.sums(part, reader.name, len(every)) for reader in readers}


def show(part: str, measured: dict[str, Any]) -> None:
    columns = ("truth", "recall", "precision", "located", "centre", "state_right", "ink", "read", "similar")
    for reader, figure in measured.items():
        used = [name for name in columns if any(row.get(name) is not None for row in figure["kinds"].values())]
        table = new_table(
            f"{part}, {reader}: {figure['screens']} screens, {figure['seconds']:.2f} s of processor time each",
            ("", *used),
        )
        for kind, row in figure["kinds"].items():
            table.add_row(kind, *("" if row.get(name) is None else f"{row[name]:,}" for name in used))
        make_console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widgets", nargs="+", default=["phone_widgets_tiny", "edges"], help="detectors by name")
    parser.add_argument("--annotated", type=Path, default=ANNOTATED, metavar="DIR")
    parser.add_argument("--screens", type=int, default=200, help="drawn screens of each kind (default 200)")
    parser.add_argument("--pages", type=int, default=45, help="pages of the browser phone (default 45)")
    parser.add_argument("--texts", type=int, default=20, help="drawn screens whose texts are read (default 20)")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR", help=f"default {OUTPUT}")
    kept = Path(__file__).with_name("records.jsonl")
    parser.add_argument("--records", type=Path, default=kept, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="20 screens of each kind, texts of 3")
    options = parser.parse_args()
    records = Records(None if options.quick else options.records)
    results = Results(options.output / "results.jsonl")
    readers = [Reader(identity(name), read_widgets(name).detect, of_widgets) for name in options.widgets]
    with ExitStack() as stack:
        every = parts(options, stack)
        measured = {part: measure(results, part, screens, readers) for part, screens in every.items()}
    for part, figure in measured.items():
        for reader, row in figure.items():
            records.add(f"screens, {part}, {reader}", row)
    if options.texts:
        ocr = RapidOcrSettings(cache=str(options.output / "texts"))
        reader = Reader(f"rapidocr {ocr.longest_side}", ocr.load().read, of_texts)
        for part, screens in text_parts(options).items():
            measured[f"texts of {part}"] = measure(results, f"texts of {part}", screens, [reader])
    for part, figure in measured.items():
        show(part, figure)
    write_json(options.output / "figures.json", measured)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
