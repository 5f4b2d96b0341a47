"""Tokens of Auto-UI's sources and targets, and what the limits remove, by setting, with T5's tokenizer.

    python -m studies.auto_ui.tokens --shards demo/shards --tokenizer google-t5/t5-base [--episodes 500]

`--shards`: a converted folder; without it the made-up episodes of tests/data/auto_ui, which have up to 14 steps. For
each setting: mean and longest source and target before the limits (512 and 128 tokens); steps whose source is too
long, the share of their earlier actions that are dropped, and the tokens cut from screen descriptions. `goal cut` is
what does not happen here: steps whose goal right truncation at 512 tokens, as in Auto-UI's published code, would cut.
`unlearned`: steps with text that the tokenizer cannot write, or with a target that is too long. The last line of output
is JSON.
"""

import argparse
import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

from vlm_agent.action_languages import language_settings
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.sentences.steps import StepSentences

ROOT = Path(__file__).resolve().parents[2]
MADE, TOKENIZER = ROOT / "tests/data/auto_ui/made.json.gz", ROOT.parent / "shared/weights/t5-tokenizer"
SETTINGS: dict[str, dict] = {
    "history 8, future 4 (the paper)": {},
    "history 12, future 10": {"history": 12, "future": 10},
    "history 2, future 2": {"history": 2, "future": 2},
    "no history, no plan": {"history": 0, "future": 0},
    "unnormalised": {"normalised": False},
    "unnormalised, history 12": {"normalised": False, "history": 12},
    "screen description": {"elements": True},
    "screen description, no history": {"elements": True, "history": 0},
}
UNLIMITED = 1 << 20


@dataclass
class Counts:
    """One entry a step, of one setting."""

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)  # of the history
    dropped: list[int] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    goal_cut: list[bool] = field(default_factory=list)
    unlearned: list[bool] = field(default_factory=list)

    def figures(self) -> dict:
        long = [
            number for number, (dropped, cut) in enumerate(zip(self.dropped, self.cut, strict=True)) if dropped or cut
        ]
        of_long = sum(self.actions[number] for number in long)
        return {
            "steps": len(self.sources),
            "source_mean": round(fmean(self.sources), 1),
            "source_max": max(self.sources),
            "target_mean": round(fmean(self.targets), 1),
            "target_max": max(self.targets),
            "too_long": len(long),
            "actions_dropped": sum(self.dropped),
            "actions_dropped_share": round(sum(self.dropped) / of_long, 3) if of_long else 0.0,
            "tokens_cut": sum(self.cut),
            "goal_cut_by_right_truncation": sum(self.goal_cut),
            "unlearned": sum(self.unlearned),
        }


def measure(sentences: StepSentences, episodes: list[Episode]) -> Counts:
    counts = Counts()
    whole = replace(sentences, max_source_tokens=UNLIMITED, max_target_tokens=UNLIMITED)
    without_screen = replace(whole, elements=False)
    for episode in episodes:
        for number, step in enumerate(episode.steps):
            past, steps = episode.steps[:number], episode.steps[number:]
            source = sentences.source(episode.goal, past, step.screen)
            counts.sources.append(whole.length(whole.source(episode.goal, past, step.screen).segments))
            counts.targets.append(whole.length(whole.target(steps)))
            counts.actions.append(min(number, sentences.history))
            counts.dropped.append(source.dropped)
            counts.cut.append(source.cut)
            # Right truncation keeps the end mark, so it keeps the goal if goal and end mark fit.
            to_goal = whole.length(without_screen.source(episode.goal, past, step.screen).segments)
            counts.goal_cut.append(to_goal > sentences.max_source_tokens)
            counts.unlearned.append(sentences.unlearnable(steps) is not None)
    return counts


def made_episodes() -> Iterator[Episode]:
    # By its path: tests are no package.
    spec = importlib.util.spec_from_file_location("golden_auto_ui", ROOT / "tests/golden/auto_ui.py")
    golden = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(golden)
    return map(golden.episode_of, golden.read_json(MADE)["episodes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path)
    parser.add_argument("--demo", type=Path, help="a folder of `make demo`, in place of --shards DEMO/shards")
    parser.add_argument("--tokenizer", default=str(TOKENIZER), help="a folder or a name on the Hub")
    parser.add_argument("--episodes", type=int, help="the first N episodes of the shards")
    parser.add_argument("--quick", action="store_true", help="ten episodes")
    options = parser.parse_args()
    shards = options.demo / "shards" if options.demo else options.shards
    if shards is None:
        episodes = list(made_episodes())
    else:
        dataset = ShardDataset(shards)
        episodes = list(dataset.each_without_pixels(range(len(dataset))[: options.episodes or None]))
    episodes = episodes[:10] if options.quick else episodes
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    results = {}
    table = Table(
        "setting",
        "source mean, max",
        "target mean, max",
        "too long",
        "actions dropped",
        "tokens cut",
        "goal cut",
        "unlearned",
    )
    for name, keys in SETTINGS.items():
        keys = dict(keys)
        language = language_settings({"name": "auto_ui", "normalised": keys.pop("normalised", True)}).build()
        found = results[name] = measure(StepSentences(tokenizer, language, **keys), episodes).figures()
        table.add_row(
            name,
            f"{found['source_mean']}, {found['source_max']}",
            f"{found['target_mean']}, {found['target_max']}",
            f"{found['too_long'] / found['steps']:.1%}",
            f"{found['actions_dropped_share']:.0%}",
            str(found["tokens_cut"]),
            f"{found['goal_cut_by_right_truncation'] / found['steps']:.1%}",
            f"{found['unlearned'] / found['steps']:.1%}",
        )
    Console(width=160).print(table)
    print(json.dumps({"episodes": len(episodes), "settings": results}))


if __name__ == "__main__":
    main()
