"""Icons: how often the first guess, and one of the first three, is the meaning.

    python -m studies.screens.icons [--reader phone_icons_tiny] [--output runs/icons] [--quick]

`phosphor`: every icon of the Phosphor font whose name has a meaning (shipped_weights/icons/icon_names.yaml), by style.
Readers of this package are never trained on this font. `plain`: dark on white, 48 pixels. `drawn`: one crop as
a phone might show it, with random colours, size 12 to 96 pixels, background, blur and JPEG.
`simulated`: the glyphs of the simulated phone, drawn likewise; phone_icons_tiny is trained on them.
`real`: elements of ../shared/data/annotated_screens without text, by their content description. `DESCRIPTIONS` states
which meanings a description permits; the others say nothing of an icon ("Tab 1 of 2") or stand on the screen
as text ("Cancel"). Do not tune to these screens.
`kept`: least score → [guesses with such a score, right ones among them].
`milliseconds`: of processor time a crop, crops of 48 pixels, 16 at a time.

The same command resumes: finished parts are files in the output folder. The last line of output is JSON.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from shipped_weights.icons.drawn import draw
from shipped_weights.icons.fonts import HELD_OUT, SIMULATED, Icon, icons_of
from studies.ablation.records import Records
from vlm_agent.files import write_json
from vlm_agent.files.jobs import Job
from vlm_agent.screens.icons import read_icons
from vlm_agent.screens.seen import IconReader

SCREENS = Path(__file__).resolve().parents[3] / "shared/data/annotated_screens"
STYLES = ("thin", "light", "bold", "fill")
QUICK = 12
"""With --quick, one icon of this many."""

LEAST = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Scores below which guesses would be dropped."""

DESCRIPTIONS = {
    "navigate up": ("back", "previous"),
    "back": ("back", "previous"),
    "forward": ("forward", "next"),
    "home": ("home",),
    "voice search": ("microphone",),
    "voice input": ("microphone",),
    "more options": ("more",),
    "scan": ("scan", "barcode", "qr_code"),
    "set date,button": ("calendar", "add_event"),
    "remove work info": ("remove",),
    "show detailed name fields": ("expand", "down"),
    "view all": ("next", "forward"),
    "add from contacts": ("add", "add_person", "contacts"),
    "attach image": ("picture", "attach"),
    "open camera": ("camera",),
    "send": ("send",),
    "bookmarks": ("bookmark", "favourite"),
}
INSTALL = " install"
"""A description that ends so is that of a button to download an app."""

Case = tuple[str, np.ndarray, tuple[str, ...]]
"""Name, crop, and the meanings that count as right."""


def plain(icons: list[Icon]) -> Iterator[Case]:
    for icon in icons:
        ink = Image.fromarray(icon.mask)
        ink.thumbnail((48, 48))
        crop = 255 - np.pad(np.asarray(ink), 8).astype(np.int16) * 220 // 255
        yield icon.name, np.repeat(crop.astype(np.uint8)[..., None], 3, 2), (icon.meaning,)


def drawn(icons: list[Icon]) -> Iterator[Case]:
    for number, icon in enumerate(icons):
        yield icon.name, draw(icon.mask, np.random.default_rng((2026, number))), (icon.meaning,)


def real(folder: Path) -> Iterator[Case]:
    for path in sorted(folder.glob("*.json")):
        screen = json.loads(path.read_text(encoding="utf-8"))
        pixels = np.asarray(Image.open(path.with_suffix(".jpg")).convert("RGB"))
        scale = np.array([pixels.shape[1], pixels.shape[0]] * 2)
        for element in screen["elements"]:
            description = (element["content_desc"] or "").strip().lower()
            permitted = ("download",) if description.endswith(INSTALL) else DESCRIPTIONS.get(description)
            if element["text"] or permitted is None:
                continue
            left, top, right, bottom = (np.array(element["bounds_ltrb"]) * scale).round().astype(int)
            yield f"{path.stem}: {element['content_desc']}", pixels[top:bottom, left:right], permitted


def described(folder: Path) -> int:
    """Elements with a description and without text."""
    screens = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return sum(bool(one["content_desc"] and not one["text"]) for screen in screens for one in screen["elements"])


def score(reader: IconReader, cases: list[Case]) -> dict[str, Any]:
    guesses = reader.read([crop for _, crop, _ in cases])
    names = [[guess.name for guess in of_crop] for of_crop in guesses]
    first = [bool(set(found[:1]) & set(right)) for found, (_, _, right) in zip(names, cases, strict=True)]
    three = [bool(set(found[:3]) & set(right)) for found, (_, _, right) in zip(names, cases, strict=True)]
    wrong = defaultdict(list)
    for found, right_first, (name, _, right) in zip(names, first, cases, strict=True):
        if not right_first:
            wrong[right[0]].append(f"{name} → {found[0] if found else 'none'}")
    scores = np.array([found[0].score if found else 0.0 for found in guesses])
    kept = {
        str(least): [int((scores >= least).sum()), int((np.array(first, bool) & (scores >= least)).sum())]
        for least in LEAST
    }
    return {"icons": len(cases), "first": sum(first), "three": sum(three), "kept": kept, "wrong": dict(wrong)}


def by_meaning(icons: list[Icon], result: dict[str, Any]) -> dict[str, list[int]]:
    """Meaning → [right, all], the worst first."""
    counts: dict[str, int] = defaultdict(int)
    for icon in icons:
        counts[icon.meaning] += 1
    rows = {name: [count - len(result["wrong"].get(name, [])), count] for name, count in counts.items()}
    return dict(sorted(rows.items(), key=lambda row: (row[1][0] / row[1][1], row[0])))


def style_of(icon: Icon) -> str:
    return next((style for style in STYLES if icon.name.endswith(f"-{style}")), "regular")


def of_font(reader: IconReader, icons: list[Icon]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, make in (("plain", plain), ("drawn", drawn)):
        cases = list(make(icons))
        whole = score(reader, cases)
        styles = {style: [] for style in ("regular", *STYLES)}
        for icon, case in zip(icons, cases, strict=True):
            styles[style_of(icon)].append(case)
        parts = {style: score(reader, part) for style, part in styles.items() if part}
        by_style = {style: {key: part[key] for key in ("icons", "first", "three")} for style, part in parts.items()}
        result[name] = {**whole, "by_style": by_style, "by_meaning": by_meaning(icons, whole)}
    return result


def milliseconds(reader: IconReader, icons: list[Icon]) -> dict[str, float]:
    crops = [crop for _, crop, _ in plain(icons[:16])]
    reader.read(crops)
    seconds = []
    for _ in range(10):
        start = time.process_time()
        reader.read(crops)
        seconds.append((time.process_time() - start) / len(crops))
    return {"a_crop": round(1000 * sorted(seconds)[len(seconds) // 2], 3)}


def parts(options: argparse.Namespace) -> dict[str, Callable[[IconReader], dict[str, Any]]]:
    step = QUICK if options.quick else 1
    held_out, own = icons_of([HELD_OUT])[::step], icons_of([SIMULATED])[::step]
    found = {
        "phosphor": lambda reader: of_font(reader, held_out),
        "simulated": lambda reader: score(reader, list(drawn(own))),
        "milliseconds": lambda reader: milliseconds(reader, held_out),
    }
    if options.screens.is_dir():
        found["real"] = lambda reader: {
            **score(reader, list(real(options.screens))),
            "described": described(options.screens),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reader", default="phone_icons_tiny", help="a name for read_icons; default phone_icons_tiny")
    parser.add_argument("--output", type=Path, default=Path("runs/icons"), metavar="DIR")
    parser.add_argument("--screens", type=Path, default=SCREENS, help="default: ../shared/data/annotated_screens")
    parser.add_argument("--quick", action="store_true", help=f"one icon of {QUICK}")
    kept = Path(__file__).with_name("records.jsonl")
    parser.add_argument("--records", type=Path, default=kept, help="not with --quick (default: %(default)s)")
    options = parser.parse_args()
    records = Records(None if options.quick else options.records)
    job = Job(options.output, "figures of an icon reader", "job/plan.json", "job/lock")
    with job.locked():
        job.write_or_verify_plan({"reader": options.reader, "quick": options.quick, **records.about})
        figures = measure(options)
    records.add(f"icons, {options.reader}", figures)
    print(json.dumps(figures))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    reader, figures, start = read_icons(options.reader), {}, time.monotonic()
    todo = parts(options)
    for number, (name, run) in enumerate(todo.items()):
        path = options.output / f"{name}.json"
        if not path.is_file():
            write_json(path, run(reader))
        figures[name] = json.loads(path.read_text(encoding="utf-8"))
        left = (time.monotonic() - start) / (number + 1) * (len(todo) - number - 1)
        print(f"{name}: {line(figures[name])}; ETA {left:.0f} s", flush=True)
    return figures


def line(figures: dict[str, Any]) -> str:
    """First guess and top three in percent, where a part counts icons."""
    if "icons" in figures:
        return f"{figures['icons']} icons, " + ", ".join(
            f"{key} {100 * figures[key] / max(1, figures['icons']):.1f} %" for key in ("first", "three")
        )
    return "; ".join(f"{key} {line(part) if isinstance(part, dict) else part}" for key, part in figures.items())


if __name__ == "__main__":
    main()
