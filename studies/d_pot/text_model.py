"""What a text model from random weights learns from chats: one choice of its recipe changed at a time.

    python -m studies.d_pot.text_model [--quick] [--steps 250] [--seeds 0] [--limit 300] [--output DIR]

Simulates demonstrations with plans, writes the chats of D-PoT (chats.py), and trains
recipes/comparison/text_chats_tiny.yaml on those of the training split. Arms:

    recipe              as it is
    words alone         without `leading_spaces`: a space is a token of its own
    prompts unlearned   `prompt_weight: 0`: the loss is that of answers alone
    no heads to match   Qwen2 of the same shape, whose weights start as transformers initialises them

Figures over --limit chats of the test split: nats an answer (comparable between tokenizers, unlike nats a token), the
share of answers whose every token is the most probable one (what greedy decoding writes), tokens a chat, and CPU
seconds of the training. Runs are cached in --output. The last line of output is JSON.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import torch

from studies.ablation.data import make_data
from studies.ablation.figures import summary
from studies.ablation.runs import (
    CPU_SECONDS,
    ROOT,
    about,
    add_options,
    command,
    cpu_seconds_of_children,
    folder_name,
    parsed,
    place_output,
    recipe_digest,
)
from studies.ablation.tables import show
from studies.d_pot.chats import drawn
from studies.d_pot.chats import main as write_chats
from vlm_agent.files import write_json
from vlm_agent.models.build import load
from vlm_agent.training.data.chats.reading import Chat, Chats
from vlm_agent.training.data.chats.sentences import ChatSentences
from vlm_agent.training.run_folder.layout import FINISHED

RECIPE = ROOT / "recipes/comparison/text_chats_tiny.yaml"
ARMS: dict[str, dict[str, str]] = {
    "recipe": {},
    "words alone": {"model.word_tokenizer.leading_spaces": "false"},
    "prompts unlearned": {"data.prompt_weight": "0"},
    "no heads to match": {"model.language_model.config.model_type": "qwen2"},
}
"""Arm → keys of the recipe."""

MODE = "d_pot"
EPISODES, QUICK_EPISODES = 1000, 60
STEPS, QUICK_STEPS, QUICK_LIMIT = 250, 4, 3


@dataclass(frozen=True)
class Answers:
    """Answers to test chats: `nats` and whether the answer `is_right` for each, and the `tokens` of the whole chat."""

    nats: list[float]
    is_right: list[bool]
    tokens: list[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four steps, three answers: does everything run?")
    parser.add_argument("--data", type=Path, metavar="DIR", help="demonstrations and chats (default OUTPUT/data)")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS), metavar="ARM")
    add_options(parser, "d_pot/text_model")
    parser.set_defaults(seeds=[0], limit=300)
    options = parsed(parser, QUICK_STEPS, QUICK_LIMIT)
    place_output(options)
    make_data(options.data, QUICK_EPISODES if options.quick else EPISODES)
    steps = STEPS if options.steps is None else options.steps
    rows: dict[str, list[dict]] = {}
    for seed in options.seeds:
        for arm in options.arms:
            rows.setdefault(arm, []).append(figures_of(arm, seed, steps, options))
            print(json.dumps({"arm": arm, "seed": seed} | rows[arm][-1]), flush=True)
    summaries = {arm: summary(of_seeds) for arm, of_seeds in rows.items()}
    show(summaries, f"Answers of {MODE} to {options.limit} test prompts after {steps} steps")
    record = about(options) | {"steps": steps, "arms": summaries, "runs": rows}
    write_json(options.output / "text_model.json", record)
    print(json.dumps(record))


def figures_of(arm: str, seed: int, steps: int, options: argparse.Namespace) -> dict[str, float]:
    keys = {"training.steps": str(steps), "training.save_steps": str(steps)} | ARMS[arm]
    folder = options.output / f"{folder_name(arm)}_{recipe_digest(RECIPE, keys)}" / str(seed)
    seconds = folder / CPU_SECONDS
    if not (folder / "run" / FINISHED).is_file() or not seconds.is_file():
        before = cpu_seconds_of_children()
        words = ("--data.chats", chats_of(options.data, "train"), "--output", folder / "run", "--seed", seed)
        command("train", "--config", RECIPE, *words, *(word for key in keys for word in (f"--{key}", keys[key])))
        write_json(seconds, {"training": cpu_seconds_of_children() - before})
    found = answers(folder / "run", drawn(Chats(chats_of(options.data, "test")), options.limit))
    return {
        "nats an answer": mean(found.nats),
        "right answers, %": 100 * mean(found.is_right),
        "tokens a chat": mean(found.tokens),
        "CPU seconds": json.loads(seconds.read_text(encoding="utf-8"))["training"],
    }


def chats_of(data: Path, split: str) -> Path:
    """The folder of the chats of a split."""
    folder = data / f"chats_{split}"
    if not (folder / f"{MODE}.jsonl").is_file():
        words = ["--shards", str(data / "shards"), "--split", split, "--output", str(folder), "--modes", MODE]
        if write_chats(words):
            raise SystemExit(1)
    return folder


@torch.inference_mode()
def answers(run: Path, chats: Sequence[Chat]) -> Answers:
    model, tokenizer = load(run)
    sentences = ChatSentences(tokenizer)
    found = Answers([], [], [])
    for chat in chats:
        sentence = sentences.build(chat)
        ids = torch.tensor([sentence.input_ids])
        first = len(sentence) - sentence.supervised
        logits = model(input_ids=ids).logits[0, first - 1 : -1].float()
        target = ids[0, first:]
        found.nats.append(torch.nn.functional.cross_entropy(logits, target, reduction="sum").item())
        found.is_right.append(bool((logits.argmax(-1) == target).all()))
        found.tokens.append(len(sentence))
    return found


if __name__ == "__main__":
    main()
