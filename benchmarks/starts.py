"""Start-up time of a training run, from the recipe to the first row: opening shards, counting tokens, packing rows.

    python -m benchmarks.starts [--episodes 100000] [--vocabulary qwen.tiktoken]

The data set is an index without shards, because the start reads only the index: episodes of eight random steps, a
seventh of them swipes. 87 % of the episodes are google_apps; the mixture keeps a tenth of these. Methods, alternately,
each in a new process:

    one by one   one tokenizer call for each distinct action of the split, as in versions before the cache
    first        batched calls for the episodes of the mixture; writes the cache
    again        the same with the cache, as when a run resumes and on all ranks but one

Without `--vocabulary` the tokens are single bytes; `qwen.tiktoken` (for example in the package dashscope) is Qwen's
vocabulary. The last line of output is JSON.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from vlm_agent.action_languages import default_settings
from vlm_agent.datasets.shards.columns import read_columns
from vlm_agent.datasets.shards.dataset import MANIFEST, ShardDataset
from vlm_agent.datasets.shards.index import INDEX, INDEXED
from vlm_agent.datasets.shards.schema import empty_table
from vlm_agent.episodes import NO_POINT, Action, ActionKind
from vlm_agent.models.qwen_vl.processor import CHAT_TURNS
from vlm_agent.models.qwen_vl_2023.tokenizer import build_tokenizer
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.sentences.image_sizes import FittedScreens
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.sentences.windows import windows
from vlm_agent.training.data.count_cache import CountCache
from vlm_agent.training.data.stream import Item, RowOrder, RowSize, chosen_episodes
from vlm_agent.training.data.token_counts import TokenCounts, columns_for, count_tokens

STEPS = 8
BUDGET = 16_384
METHODS = ("one by one", "first", "again")
WORDS = (
    "weather",
    "hotels",
    "in",
    "show",
    "me",
    "the",
    "best",
    "phone",
    "price",
    "of",
    "new",
    "york",
    "open",
    "search",
)


def main() -> None:
    options = parse()
    if options.method is not None:
        print(json.dumps(start(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        make_index(options.folder, options.episodes)
        runs = {method: [] for method in METHODS}
        for number in range(options.rounds):
            for method in METHODS:
                runs[method].append(in_a_process(options, method, number))
    seconds = {method: min(one["seconds"] for one in group) for method, group in runs.items()}
    figures = runs["again"][0] | {"episodes": options.episodes, "threads": os.cpu_count(), "seconds": seconds}
    table = Table(title=f"{options.episodes:,} episodes: seconds to the first row", box=None)
    for column in ("", "s", "times"):
        table.add_column(column, justify="right")
    for method, time_ in seconds.items():
        table.add_row(method, f"{time_:.1f}", f"{seconds[METHODS[0]] / time_:.1f}")
    Console().print(table)
    print(json.dumps(figures))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="rounds per method (default 2)")
    parser.add_argument("--vocabulary", type=Path, metavar="FILE", help="qwen.tiktoken")
    parser.add_argument("--method", choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_a_process(options: argparse.Namespace, method: str, number: int) -> dict:
    command = [sys.executable, "-m", "benchmarks.starts", "--method", method, "--folder", str(options.folder)]
    command += ["--cache", str(options.folder / f"cache-{number}")]
    command += [] if options.vocabulary is None else ["--vocabulary", str(options.vocabulary)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def make_index(folder: Path, episodes: int) -> None:
    """An index and a manifest; the shards that they name do not exist."""
    rng = np.random.default_rng(0)
    rows = [index_row(number, rng) for number in range(episodes)]
    schema = (
        empty_table(INDEXED).schema.append(pa.field("shard", pa.string())).append(pa.field("row_group", pa.int32()))
    )
    pa.parquet.write_table(pa.Table.from_pylist(rows, schema=schema), folder / INDEX, compression="zstd")
    manifest = {"schema_version": 2, "files": [{"shard": "all.parquet", "episodes_written": episodes}]}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def index_row(number: int, rng: np.random.Generator) -> dict:
    steps = [
        {
            "height": 1440,
            "width": 720,
            "action_kind": int(action.kind),
            "touch_yx": action.touch_yx,
            "lift_yx": action.lift_yx,
            "text": action.text,
        }
        for action in (random_action(rng) for _ in range(STEPS))
    ]
    return {
        "episode_id": str(number),
        "subset": "google_apps" if rng.random() < 0.87 else "general",
        "split": "train",
        "goal": " ".join(rng.choice(WORDS, 5)),
        "device_type": "",
        "android_api_level": 30,
        "steps": steps,
        "shard": "all.parquet",
        "row_group": number,
    }


def random_action(rng: np.random.Generator) -> Action:
    kind, points = rng.random(), rng.random(4).tolist()
    if kind < 0.6:
        return Action.tap(*points[:2])
    if kind < 0.73:
        return Action(ActionKind.DUAL_POINT, tuple(points[:2]), tuple(points[2:]))
    if kind < 0.8:
        return Action.type_text(" ".join(rng.choice(WORDS, 3)))
    return Action(ActionKind.STATUS_TASK_COMPLETE if kind < 0.92 else ActionKind.PRESS_HOME, NO_POINT, NO_POINT)


def start(options: argparse.Namespace) -> dict:
    sentences = sentences_of(options.vocabulary)
    settings, recipe = default_settings(), DataRecipe(shards=str(options.folder), mixture={"google_apps": 0.1})
    start_time = time.perf_counter()
    shards = ShardDataset(options.folder, split="train")
    episodes = chosen_episodes(shards, recipe)
    if options.method == METHODS[0]:
        counts = count_one_by_one(shards, sentences)
    else:
        cache = CountCache(options.cache, settings.model_dump(mode="json"))
        counts = count_tokens(columns_for(shards, sentences, episodes=episodes), sentences, episodes, cache)
    rows = counts.rows_of(np.array(episodes)).tolist()
    items = [
        Item(episode, window)
        for episode, row in zip(episodes, rows, strict=True)
        for window in windows(int(counts.goal[row]), counts.steps_of(row).tolist(), BUDGET)
    ]
    RowOrder(items, RowSize(tokens=BUDGET), 0).row(0)
    seconds = time.perf_counter() - start_time
    return {"seconds": round(seconds, 2), "chosen": len(episodes), "tokens": int(counts.whole[rows].sum())}


def sentences_of(vocabulary: Path | None) -> TrajectorySentences:
    if vocabulary is None:
        with tempfile.NamedTemporaryFile("w", suffix=".tiktoken") as file:
            tokens = (bytes([value]) for value in range(256))
            file.writelines(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens))
            file.flush()
            tokenizer = build_tokenizer(Path(file.name), 8192)
    else:
        tokenizer = build_tokenizer(vocabulary, 8192)
    screens = FittedScreens(56 * 56, 1280 * 28 * 28, 28)
    return TrajectorySentences(tokenizer, default_settings().build(), screens, CHAT_TURNS)


def count_one_by_one(shards: ShardDataset, sentences: TrajectorySentences) -> TokenCounts:
    """The token counts of all episodes of the split, with one encode and one decode call per distinct text."""
    from vlm_agent.training.data import token_counts
    from vlm_agent.training.data.text_lengths import TextLengths

    def one_by_one(sentences: TrajectorySentences, texts: list[str]) -> TextLengths:
        ids = [sentences.ids(text) for text in texts]
        same = [sentences.text(of_text) == text for of_text, text in zip(ids, texts, strict=True)]
        return TextLengths(np.array(list(map(len, ids)), np.int32), np.array(same, bool))

    token_counts.text_lengths = one_by_one
    return count_tokens(read_columns(shards), sentences)


if __name__ == "__main__":
    main()
