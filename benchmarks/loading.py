"""Throughput of data loading in evaluation, by the number of loader processes, with a decoder that costs nothing.

    python -m benchmarks.loading [--workers 0 1 2]

Episodes of the simulated phone, enlarged to 1440 x 720 pixels, are prepared as for Qwen2.5-VL: decoded, resized to at
most 1,280 visual tokens, divided into patches and collated, for the agent and both controls. The decoder returns the
demonstrated tokens. `main ms` is the processor time of the main process per step, during which a GPU would wait.
Predictions must be equal byte by byte. The last line of output is JSON.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from rich.console import Console
from rich.table import Table

from vlm_agent.agents.controls import controls_of
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.evaluation.about import AGENT
from vlm_agent.evaluation.offline.parts import Parts
from vlm_agent.evaluation.offline.run import predict
from vlm_agent.files.jobs import ArrayTask
from vlm_agent.models.decoding import Prefill, growing_cache
from vlm_agent.models.qwen_vl.model import CHAT_TURNS, QwenVLCollator
from vlm_agent.sentences import IGNORED
from vlm_agent.sentences.image_sizes import FittedScreens
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.simulator.demonstrations import simulate_episode

SIZE = 1440, 720


class DemonstrationDecoder:
    """A decoder without a model, whose answers are the demonstrated tokens."""

    def __init__(self):
        vision = SimpleNamespace(patch_size=14, spatial_merge_size=2)
        self._collate = QwenVLCollator(SimpleNamespace(vision_config=vision))
        self.prepare_screen = self._collate.prepare_screen

    def prefill(self, sentences) -> Prefill:
        self._collate.screens(sentences)
        positions = np.concatenate([self._collate.positions(sentence)[1] for sentence in sentences])
        starts = np.cumsum([0, *map(len, sentences)])
        best = [label for sentence in sentences for label in sentence.labels if label != IGNORED]
        return Prefill(growing_cache(), starts, best, lambda index: None, positions)


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        dataset = make_shards(Path(folder) / "shards", options.episodes)
        rounds = [
            {workers: evaluate(dataset, workers, Path(folder) / f"{number}-{workers}") for workers in options.workers}
            for number in range(options.rounds)
        ]
    files = {content for one in rounds for _, content in one.values()}
    assert len(files) == 1, "predictions differ"
    best = {
        workers: {
            name: pick(one[workers][0][name] for one in rounds)
            for name, pick in (("steps_per_second", max), ("main_ms", min))
        }
        for workers in options.workers
    }
    table = Table(title=f"{len(dataset)} episodes, agent and both controls", box=None)
    for column in ("processes", "steps/s", "main ms"):
        table.add_column(column, justify="right")
    for workers, figures in best.items():
        table.add_row(str(workers), f"{figures['steps_per_second']:.1f}", f"{figures['main_ms']:.1f}")
    Console().print(table)
    print(
        json.dumps(
            {"episodes": len(dataset), "cores": os.cpu_count(), "identical_predictions": True, "by_workers": best}
        )
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=16, metavar="N")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds per number of workers (default 3)")
    return parser.parse_args()


def make_shards(folder: Path, count: int) -> ShardDataset:
    with ShardWriter(folder / "general.parquet") as shard:
        for seed in range(count):
            episode, _ = simulate_episode(seed, "test")
            steps = tuple(replace(step, screenshot=enlarged(step.screenshot)) for step in episode.steps)
            shard.write(replace(episode, id=str(seed), steps=steps), "test")
    file = {"shard": "general.parquet", "subset": "general", "episodes_written": count}
    write_manifest(folder, {"files": [file]})
    return ShardDataset(folder, split="test")


def enlarged(screen: np.ndarray) -> np.ndarray:
    """Resizes by nearest neighbour, which keeps the flat areas and sharp edges of real screens."""
    rows, columns = (np.arange(to) * of // to for to, of in zip(SIZE, screen.shape, strict=False))
    return np.ascontiguousarray(screen[rows][:, columns])


def evaluate(dataset: ShardDataset, workers: int, output: Path) -> tuple[dict[str, float], bytes]:
    parts, runs = Parts(output, range(len(dataset))), [AGENT, *controls_of(())]
    start, start_main = time.perf_counter(), time.process_time()
    predict(make_agent, runs, dataset, parts, ArrayTask(), Console(file=StringIO()), workers)
    seconds, main_seconds = time.perf_counter() - start, time.process_time() - start_main
    steps = len(runs) * sum(map(len, dataset.screen_sizes))
    content = b"".join(path.read_bytes() for path in sorted(output.rglob("*.parquet")))
    return {"steps_per_second": round(steps / seconds, 1), "main_ms": round(1e3 * main_seconds / steps, 2)}, content


def make_agent() -> VlmAgent:
    from benchmarks.starts import sentences_of

    sentences: TrajectorySentences = replace(
        sentences_of(None), screens=FittedScreens(56 * 56, 1280 * 28 * 28, 28), template=CHAT_TURNS
    )
    model = SimpleNamespace(device=SimpleNamespace(type="cpu"))
    return VlmAgent(model, sentences.tokenizer, sentences, batch_tokens=32_768, decoder=DemonstrationDecoder())


if __name__ == "__main__":
    main()
