"""Figures of the runs, their differences, and what no model can exceed with an input."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from transformers import AutoTokenizer

from studies.ablation.figures import OfSeeds, paired, row_of
from studies.ablation.runs import Run
from studies.vision_tasker.inputs.arms import INPUTS
from studies.vision_tasker.inputs.data import SIZE
from studies.vision_tasker.questions.taps import VERDICTS, verdict
from studies.vision_tasker.questions.truth import Truth, expert_taps
from vlm_agent.evaluation.offline.run import AGENT
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.evaluation.scoring.measures import interval, resampled
from vlm_agent.files.console import Progress, make_console
from vlm_agent.screens.understand import Readers, understand
from vlm_agent.simulator.demonstrations import phone_seed

NEXT = "next element"
SCORES = {
    "official": ("official", "overall", "partial_match"),
    "strict": ("strict", "overall", "partial_match"),
    "action type": ("official", "overall", "action_type"),
    "no action": ("official", "overall", "parse_failures"),
    "tokens read": ("cost", "tokens_read"),
    "tokens written": ("cost", "tokens_written"),
}
"""Tokens are those of an episode, of the model's own tokenizer."""

FIGURES = (NEXT, *SCORES)
PAIRS = (("words read", "html read"), ("html read", "html given"), ("words read", "html given"))
"""The first of a pair minus the second: the form, the reading, both."""


def next_element(run: Run) -> dict[str, Any]:
    """Share of the expert's taps in the test episodes, in percent, that the agent answers with a tap that does the same
    on the phone: the same widget is under both fingers, whatever the input calls it. `verdicts`: by episode, 1 or 0 for
    each of its taps."""
    predicted = {
        (row.episode_id, row.step): row.predicted for row in read_predictions(run.evaluation / "predictions.parquet")
    }
    verdicts: dict[str, str] = {}
    for truth in tapped_screens(run.limit):
        episode, _ = place = _place(truth)
        action = predicted[place]
        is_right = action is not None and action.is_tap and truth.key_at(action.touch_yx) == truth.key
        verdicts[episode] = verdicts.get(episode, "") + str(int(is_right))
    right, taps = (sum(map(count, verdicts.values())) for count in (lambda one: one.count("1"), len))
    return {"share": 100 * right / taps, "right": right, "taps": taps, "verdicts": verdicts}


def tap_differences(verdicts: Mapping[str, Sequence[Mapping[str, str]]]) -> list[dict]:
    """For each of `PAIRS`, the difference of right taps in points, the mean over seeds, with the 95 % interval of a
    bootstrap over the test episodes, None where no episode differs. `verdicts`: input → those of `next_element` of
    each seed."""
    rows = []
    for better, worse in PAIRS:
        if better in verdicts and worse in verdicts:
            episodes = list(verdicts[better][0])
            taps = np.array([len(verdicts[better][0][one]) for one in episodes], float)
            shares = [
                np.mean([[of_seed[one].count("1") for one in episodes] for of_seed in verdicts[name]], axis=0)
                for name in (better, worse)
            ]
            change = shares[0] - shares[1]
            edges = interval(resampled(change, taps, f"{better} {worse}"))
            shown = None if edges is None else [round(edge, 1) for edge in edges]
            difference = round(100 * float(change.sum() / taps.sum()), 2)
            rows.append({"better": better, "worse": worse, "difference": difference, "interval": shown})
    return rows


def tapped_screens(episodes: int) -> Iterator[Truth]:
    """The screens of the expert's taps in the first `episodes` test episodes."""
    return takewhile(lambda truth: _seed(truth) < episodes, expert_taps(SIZE))


def _seed(truth: Truth) -> int:
    return int(truth.name.partition("-")[0])


def _place(truth: Truth) -> tuple[str, int]:
    """(episode id, step) in shards."""
    return str(phone_seed(_seed(truth), "test")), int(truth.name.partition("-")[2])


def figures_of(run: Run) -> dict[str, float | None]:
    seconds = {f"{stage}, min": round(value / 60, 2) for stage, value in run.seconds.items()}
    return {NEXT: run.figure(NEXT)["share"]} | row_of(run.metrics[AGENT], SCORES) | seconds


def differences(figures: Mapping[str, OfSeeds]) -> list[dict]:
    """The differences of `PAIRS`, paired by seed; `figures[input][seed]`."""
    rows = [
        {"better": better, "worse": worse} | paired(figures.get(better, {}), figures.get(worse, {}), FIGURES)
        for better, worse in PAIRS
    ]
    return [row for row in rows if NEXT in row]


def ceilings(episodes: int, readers: Readers, tokenizer: str) -> dict[str, dict]:
    """By input, of the expert's taps in the test episodes: counts of `VERDICTS`, the share in percent that can be
    named (`named` or `ambiguous`), and the tokens of what is shown of a screen, without the instructions."""
    encode = AutoTokenizer.from_pretrained(tokenizer).encode
    counts: dict[str, Counter[str]] = {name: Counter() for name in INPUTS}
    tokens: dict[str, list[int]] = {name: [] for name in INPUTS}
    done = 0
    with Progress(make_console(stderr=True), episodes, "episodes").shown() as progress:
        for truth in tapped_screens(episodes):
            seen = understand(truth.pixels, readers)
            for name, shown in INPUTS.items():
                view = shown.view(truth, seen)
                counts[name][verdict(truth, view)] += 1
                tokens[name].append(len(encode(view.text, add_special_tokens=False)))
            progress.advance(_seed(truth) - done, "naming taps")
            done = _seed(truth)
        progress.advance(episodes - done, "naming taps", is_stage_end=True)
    return {name: _ceiling(counts[name], tokens[name]) for name in INPUTS}


def _ceiling(counts: Counter[str], tokens: Sequence[int]) -> dict:
    can = counts["named"] + counts["ambiguous"]
    return {
        "taps": counts.total(),
        "can be named, %": round(100 * can / counts.total(), 1),
        **{name: counts[name] for name in VERDICTS},
        "tokens a screen": round(fmean(tokens), 1),
        "most tokens": max(tokens),
    }


def chats_of(path: Path) -> dict[str, int]:
    """Chats of an input; recorded taps on nothing that the input shows have none."""
    with path.open(encoding="utf-8") as lines:
        chats = [json.loads(line) for line in lines]
    taps = sum(json.loads(chat["messages"][-1]["content"])["action"] == "tap" for chat in chats)
    return {"chats": len(chats), "taps": taps}
