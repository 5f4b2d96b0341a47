"""What can be known of a screen from a description of it, before any model plans (VisionTasker, tables 1 and 2).

    python -m studies.vision_tasker.questions [--screens 180] [--quick] [--widgets DETECTOR] [--icons READER]
        [--tokenizer FOLDER] [--output FOLDER] [--records FILE]

Screens are those of all taps of the expert on held-out simulated episodes, drawn at 896x416 pixels, because texts of 8
pixels cannot be read. Four views of each screen are compared:

    words        the description of what is read from pixels
    html         the elements read from pixels, as HTML
    given words  the description of the phone's own annotations and widgets: what a perfect reader would write
    given html   the phone's own annotations as HTML

A1  precision and recall of texts and widgets at IoU 0.5, whatever their kind, and texts read right
A2  icons without a text whose meaning is right, of those that a meaning exists for; without ones that are not found
A3  500 questions from the phone's state, drawn with a seed, answered from the text of a view by rules: the state of a
    switch, the active tab (status), the text beside a name, whether a text is there (content), how many switches, how
    many rows (count). Functions and summaries need a reader and are left out. An answer that is not stated is wrong.
    `chance`: questions with two answers would be right by half.
taps  what a view makes of each tap of the expert: missed (nothing in it, touched at its centre, does the same), misread
    (something does under another name), ambiguous (its name occurs elsewhere, so that only its number tells it apart),
    named rightly. Taps that are missed or misread are out of reach of any planner; no planner is part of this.
tokens  a screen, by the tokenizer of FOLDER (default: the embedded base's), of each view and of the view tree (the
    annotations as nodes with the attributes of Android's accessibility service)
tabs  active tabs found, and screens without tabs on which one is seen

Results are kept in --output, a file a screen, and OCR by the picture's digest; a killed command resumes. Prints the
time left and adds a line to --records; the last line of output is JSON.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from statistics import fmean

import numpy as np
from transformers import AutoTokenizer

from studies.ablation.records import Records
from studies.vision_tasker.questions.asked import GROUPS, Question, is_right, questions_on
from studies.vision_tasker.questions.reading import boxes_found, icons_read, of_truth
from studies.vision_tasker.questions.taps import VERDICTS, verdict
from studies.vision_tasker.questions.truth import Truth, expert_taps, view_tree
from studies.vision_tasker.questions.views import View, in_html, in_words, lines_of
from vlm_agent.files import read_json, write_json
from vlm_agent.models.run_layout import base_folder
from vlm_agent.screens.seen import Understood
from vlm_agent.screens.text import RapidOcrSettings
from vlm_agent.screens.understand import Readers, Seconds, understand

ROOT = Path(__file__).resolve().parents[3]
SIZE = (896, 416)
SCREENS, QUICK = 180, 12
BASE = "phone_vlm_tiny"
QUESTIONS = {"status": 0.3, "content": 0.5, "count": 0.2}
"""Share of each kind of the 500 questions; what one lacks the next has more."""

VERSION = 1
"""Version of the files of screens."""


def views_of(truth: Truth, understood: Understood) -> dict[str, View]:
    return {
        "words": in_words(understood),
        "html": in_html(understood.elements),
        "given words": in_words(of_truth(truth)),
        "given html": in_html(truth.elements),
    }


def measure(truth: Truth, readers: Readers, elsewhere: list[str]) -> dict:
    """All that the summary needs of one screen."""
    seconds = Seconds()
    understood = understand(truth.pixels, readers, seconds)
    views = views_of(truth, understood)
    active = {label for label, is_active in truth.tabs if is_active}
    return {
        "name": truth.name,
        "goal": truth.goal,
        "boxes": boxes_found(truth, understood),
        "icons": icons_read(truth, understood),
        "taps": {name: verdict(truth, view) for name, view in views.items()},
        "tapped": [truth.key, truth.wanted_texts, truth.wanted_icon],
        "questions": [asdict(one) for one in questions_on(truth, elsewhere)],
        "tabs": {"active": sorted(active), "found": [part.text for part in understood.parts if part.selected]},
        "texts": {name: view.text for name, view in views.items()}
        | {"view tree": view_tree(truth.elements, understood.size)},
        "blocks": len(understood.blocks),
        "titles": sum(bool(block.title) for block in understood.blocks),
        "seconds": seconds.stages,
    }


def run(count: int, folder: Path, readers: Readers) -> list[dict]:
    """The records of the first `count` screens; those in `folder` are read."""
    settings = readers.model_dump(mode="json", exclude={"text": {"cache"}}) | {"size": SIZE, "version": VERSION}
    plan = folder / "settings.json"
    if plan.exists() and read_json(plan, "remove the folder") != json.loads(json.dumps(settings)):
        sys.exit(f"{folder} holds results of other settings ({plan}); choose another --output")
    write_json(plan, settings)
    records, elsewhere, start, new = [], [], time.monotonic(), 0
    for number, truth in enumerate(islice(expert_taps(SIZE), count)):
        path = folder / f"{number:04d}.json"
        if not path.exists():
            write_json(path, measure(truth, readers, elsewhere[-200:]))
            new += 1
            if new % 10 == 0:
                left = (time.monotonic() - start) / new * (count - number - 1)
                print(f"{number + 1} of {count} screens, ETA {left:.0f} s", flush=True)
        elsewhere += sorted({one.text for one in truth.elements if one.type == "TEXT"} - set(elsewhere[-200:]))
        records.append(read_json(path, "remove it"))
    return records


def asked(records: list[dict], count: int) -> list[tuple[dict, dict]]:
    """`count` questions of all screens, with the texts of theirs, drawn with a seed, by the shares of `QUESTIONS`."""
    rng = random.Random(0)
    groups: dict[str, list[tuple[dict, dict]]] = {group: [] for group in QUESTIONS}
    for record in records:
        for question in record["questions"]:
            groups[GROUPS[question["kind"]]].append((question, record["texts"]))
    for group in groups.values():
        rng.shuffle(group)
    wanted = {group: min(round(share * count), len(groups[group])) for group, share in QUESTIONS.items()}
    for group in sorted(groups, key=lambda group: -len(groups[group])):
        wanted[group] = min(len(groups[group]), wanted[group] + count - sum(wanted.values()))
    return [question for group, number in wanted.items() for question in groups[group][:number]]


def shares(questions: list[tuple[dict, dict]], views: Iterable[str]) -> dict[str, dict]:
    """View → kind → [right, questions]."""
    kinds = list(dict.fromkeys([*QUESTIONS, *(one["kind"] for one, _ in questions), "overall"]))
    result: dict[str, dict] = {}
    for view in views:
        counts = {kind: [0, 0] for kind in kinds}
        for one, texts in questions:
            question = Question(one["kind"], tuple(one["about"]), one["answer"])
            right = is_right(question, lines_of(texts[view]))
            for kind in (question.kind, GROUPS[question.kind], "overall"):
                counts[kind][0] += right
                counts[kind][1] += 1
        result[view] = counts
    return result


def summary(records: list[dict], questions: int, tokenizer: str) -> dict:
    views = list(records[0]["taps"])
    encode = AutoTokenizer.from_pretrained(tokenizer).encode
    tokens = {
        name: [len(encode(record["texts"][name], add_special_tokens=False)) for record in records]
        for name in records[0]["texts"]
    }
    with_tabs = [record["tabs"] for record in records if record["tabs"]["active"]]
    without = [record["tabs"] for record in records if not record["tabs"]["active"]]
    return {
        "screens": len(records),
        "episodes": len({record["name"].partition("-")[0] for record in records}),
        "A1": {name: total(record["boxes"][name] for record in records) for name in records[0]["boxes"]},
        "A2": total(record["icons"] for record in records),
        "A3": shares(asked(records, questions), views),
        "taps": {view: dict(Counter({kind: 0 for kind in VERDICTS}) | Counter(r["taps"][view] for r in records))
                 for view in views},
        "tokens": {name: {"mean": round(fmean(each), 1), "max": max(each)} for name, each in tokens.items()},
        "tokenizer": tokenizer,
        "tabs": {
            "screens": len(with_tabs),
            "found": sum(set(one["active"]) <= set(one["found"]) for one in with_tabs),
            "wrong": sum(bool(set(one["found"]) - set(one["active"])) for one in with_tabs),
            "screens_without": len(without),
            "seen_without": sum(bool(one["found"]) for one in without),
        },
        "blocks": round(fmean(record["blocks"] for record in records), 1),
        "seconds": {
            stage: round(float(np.median([record["seconds"][stage] for record in records])), 3)
            for stage in records[0]["seconds"]
        },
    }  # fmt: skip


def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    result: Counter[str] = Counter()
    for one in counts:
        result.update(one)
    return dict(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--screens", type=int, help=f"default: {SCREENS}")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} screens")
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--widgets", default=Readers().widgets, help="default: %(default)s")
    parser.add_argument("--icons", default=Readers().icons, help="default: %(default)s")
    parser.add_argument("--tokenizer", default=str(base_folder(BASE) / "tokenizer"), help=f"default: {BASE}'s")
    parser.add_argument("--output", type=Path, help="default: below build/")
    kept = Path(__file__).with_name("records.jsonl")
    parser.add_argument("--records", type=Path, default=kept, help="not with --quick (default: %(default)s)")
    options = parser.parse_args()
    kept_figures = Records(None if options.quick else options.records)
    name = f"screen_questions-{options.widgets}-{options.icons}".replace("/", "_").replace(":", "_")
    folder = options.output or ROOT / "build" / name
    folder.mkdir(parents=True, exist_ok=True)
    text = RapidOcrSettings(cache=str(folder.parent / "screen_questions_ocr"))
    readers = Readers(text=text, widgets=options.widgets, icons=options.icons)
    records = run(options.screens or (QUICK if options.quick else SCREENS), folder, readers)
    figures = summary(records, options.questions, options.tokenizer)
    for part, value in figures.items():
        print(part, json.dumps(value))
    kept_figures.add(f"{name}, {len(records)} screens", figures | {"tokenizer": Path(options.tokenizer).parent.name})
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
