"""Runs: an arm of a benchmark with a seed, trained and evaluated once. Killed ones resume, finished ones are kept, and
the figures of recorded ones are read from the record."""

import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from statistics import mean

from rich.console import Console

from benchmarks.gpu.record import commit, hardware
from studies.ablation.records import Records, pruned
from vlm_agent.agents.loading import agent_settings
from vlm_agent.datasets.shards.dataset import MANIFEST
from vlm_agent.evaluation.online import evaluate_online
from vlm_agent.files.console import stopped_by_signals
from vlm_agent.models.run_layout import EMBEDDED
from vlm_agent.models.weights.precision import has_bf16
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.run import read_recipe
from vlm_agent.training.run_folder.layout import FINISHED

ROOT = Path(__file__).resolve().parents[2]
SECONDS = "seconds.json"
CPU_SECONDS = "cpu_seconds.json"
ABOUT = "about.json"
"""Commit and hardware of the newest stage."""


@dataclass(frozen=True)
class Run:
    """An arm with a seed.

    `folder`: the files of this run alone. `data`: a folder with shards/ and aitw/groups.json, as `make demo` writes it.
    `keys`: overrides of the recipe. `features`: called before training, returns further overrides. `limit`: the number
    of test episodes. `controls`: whether the evaluation also scores the controls, or the names of those that it scores.
    `scoring`: further options of `vlm-agent evaluate`. `records`: where the figures at the paths `kept` of each scored
    run, the seconds and the figures of `derived` are recorded; those are computed from the files of the finished run.
    """

    name: str
    seed: int
    folder: Path
    recipe: Path
    data: Path
    limit: int
    keys: tuple = ()
    controls: bool | tuple[str, ...] = False
    scoring: tuple = ()
    features: Callable[[], tuple] = field(default=tuple, compare=False)
    records: Records = field(default=Records(None), compare=False)
    kept: tuple[Sequence[str], ...] = ()
    derived: Mapping[str, Callable[["Run"], object]] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> str:
        """Names the run in records. The folder's name has the digest of the recipe or of all arms' recipe; figures in
        bfloat16 are not those in float32."""
        precision = ", bfloat16" if has_bf16() else ""
        return f"{self.folder.parent.name}/{self.folder.name}, {self.limit} episodes{precision}"

    @property
    def trained(self) -> Path:
        return self.folder / "run"

    @property
    def evaluation(self) -> Path:
        return self.folder / f"evaluation_{self.limit}"

    @property
    def has_files(self) -> bool:
        return (self.evaluation / "metrics.json").is_file()

    @property
    def is_done(self) -> bool:
        return self.has_files or "metrics" in self.records.find(self.key)

    @property
    def metrics(self) -> dict:
        """The scores of a finished run; of a recorded one those that are kept."""
        if not self.has_files:
            return self.records.find(self.key)["metrics"]
        return json.loads((self.evaluation / "metrics.json").read_text(encoding="utf-8"))

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time of each finished stage, the sum over restarts."""
        return self._known_seconds(SECONDS)

    @property
    def cpu_seconds(self) -> dict[str, float]:
        """CPU time of each finished stage, which other work on the machine changes less."""
        return self._known_seconds(CPU_SECONDS)

    def _known_seconds(self, name: str) -> dict[str, float]:
        path = self.folder / name
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))
        return self.records.find(self.key).get(name.removesuffix(".json"), {})

    def figure(self, name: str) -> object:
        """A figure of `derived`."""
        known = self.records.find(self.key)
        return known[name] if name in known else self.derived[name](self)

    def complete(self) -> None:
        """Trains, evaluates and records what is not finished yet; both commands resume."""
        if "metrics" in self.records.find(self.key):
            return
        self.complete_files()
        metrics = {name: pruned(scores, self.kept) for name, scores in self.metrics.items()}
        derived = {name: compute(self) for name, compute in self.derived.items()}
        seconds = {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds}
        about = json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))
        self.records.add(self.key, about | {"metrics": metrics, **seconds} | derived)

    def complete_files(self) -> None:
        """Like `complete`, of a recorded run too: what needs the trained weights."""
        shards = self.data / "shards"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.trained / FINISHED).is_file():
            keys = ("--output", self.trained, "--data.shards", shards, "--seed", self.seed)
            self._timed("training", "train", "--config", self.recipe, *keys, *self.features(), *self.keys)
        if not self.has_files:
            scoring = ("--limit", self.limit, "--groups", self.data / "aitw/groups.json", *self.scoring)
            if not self.controls:
                scoring += ("--controls", "none")
            elif not isinstance(self.controls, bool):
                scoring += ("--controls", *self.controls)
            scoring += ("--agent.bf16", "true") if has_bf16() else ()
            keys = ("--checkpoint", self.trained, "--shards", shards, "--output", self.evaluation)
            self._timed("evaluation", "evaluate", *keys, *scoring)

    def online(self, tasks: int) -> list[dict]:
        """Success on `tasks` simulated phones: of the agent, of the expert and of an agent that does nothing."""
        name = f"online, {tasks} tasks"
        known = self.records.find(self.key)
        if name not in known:
            self.complete_files()
            known = {name: self._online(tasks)}
            self.records.add(self.key, known)
        return known[name]

    def _online(self, tasks: int) -> list[dict]:
        return [
            {"run": name, "success": overall["success"], "interval": [round(edge, 1) for edge in overall["interval"]]}
            for name, overall in ((name, row["overall"]) for name, row in self._play(tasks).items())
        ]

    def _play(self, tasks: int) -> Mapping[str, dict]:
        """The scores of each run of the online evaluation."""
        overrides = {"bf16": True} if has_bf16() else {}
        settings = agent_settings(checkpoint=str(self.trained), overrides=overrides)
        quiet = Console(file=StringIO())
        content: dict = evaluate_online(settings, self.folder / "online", quiet, tasks=tasks, controls=False)
        return content["runs"]

    def _timed(self, stage: str, *words) -> None:
        (self.folder / ABOUT).write_text(json.dumps(self.records.about), encoding="utf-8")
        start, of_cpu = time.monotonic(), cpu_seconds_of_children()
        try:
            command(*words)
        finally:
            self._add_seconds(SECONDS, stage, time.monotonic() - start)
            self._add_seconds(CPU_SECONDS, stage, cpu_seconds_of_children() - of_cpu)

    def _add_seconds(self, name: str, stage: str, seconds: float) -> None:
        path = self.folder / name  # not a record: its run was another one
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        known[stage] = known.get(stage, 0.0) + seconds
        (self.folder / name).write_text(json.dumps(known), encoding="utf-8")


def complete_all(runs: Sequence[Run], figures_of: Callable[[Run], dict]) -> dict[str, dict[int, dict]]:
    """Completes the runs in their order, and prints the time left before and the figures after each. Returns
    {arm: {seed: figures}}."""
    figures: dict[str, dict[int, dict]] = {}
    for number, run in enumerate(runs):
        if not run.is_done:
            print(f"{run.name}, seed {run.seed}: run {number + 1} of {len(runs)}{time_left(runs)}", flush=True)
        run.complete()
        found = figures.setdefault(run.name, {})[run.seed] = figures_of(run)
        print(json.dumps({"arm": run.name, "seed": run.seed, **found}), flush=True)
    return figures


def time_left(runs: Iterable[Run]) -> str:
    """From the seconds of finished runs of the same arm, or of all arms."""
    known: dict[str, list[float]] = {}
    unfinished = []
    for run in runs:
        if run.is_done:
            known.setdefault(run.name, []).append(sum(run.seconds.values()))
        else:
            unfinished.append(run.name)
    if not known:
        return ""
    overall = mean(mean(seconds) for seconds in known.values())
    left = sum(mean(known.get(name, [overall])) for name in unfinished)
    return f", about {left / 60:.0f} min left"


def recipe_digest(recipe: Path, overrides: dict[str, str] | None = None) -> str:
    """Names the folder of a run, so that a change of the recipe, or of an embedded base that it names, starts a new
    one."""
    content = read_recipe(recipe, overrides or {}).model_dump(mode="json", exclude={"output", "seed"})
    bases = {name: digest for name, digest in EMBEDDED.items() if name in json.dumps(content["model"])}
    content |= {"embedded": bases} if bases else {}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def overrides(keys: tuple[str, ...]) -> dict[str, str]:
    """`--key value …` as {key: value}."""
    return {key.removeprefix("--"): value for key, value in zip(keys[::2], keys[1::2], strict=True)}


def data_of(run: Run) -> DataRecipe:
    """`data` of the run's recipe."""
    return read_recipe(run.recipe, overrides(run.keys)).data


def folder_name(arm: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in arm)


def stored_features(data: Path, recipe: Path, form: str) -> Path:
    """The folder of the features of the screens in `data`, computed at the first call; killed extraction resumes."""
    extractor = read_recipe(recipe).model.features.extractor
    output = data / f"features_{form}"
    if not (output / MANIFEST).is_file():  # written last; training refuses features of other shards
        command("features", data / "shards", "--extractor", extractor, "--form", form, "--output", output)
    return output


def cpu_seconds_of_children() -> float:
    """CPU seconds of the finished child processes and their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command(*words) -> None:
    """Runs a subcommand of this checkout, which ends with this process."""
    environment = os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    arguments = [sys.executable, "-m", "vlm_agent.cli", *map(str, words)]
    with stopped_by_signals():
        subprocess.run(arguments, check=True, env=environment, stdout=sys.stderr)


def add_options(parser: ArgumentParser, folder: str) -> None:
    """The options of every study of runs. `folder`: its folder below studies/, and the default output below build/."""
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="S")
    parser.add_argument("--steps", type=int, metavar="N", help="training steps of a run (default: its own)")
    parser.add_argument("--limit", type=int, default=160, metavar="N", help="test episodes (default 160)")
    parser.add_argument("--tasks", type=int, default=100, metavar="N", help="online tasks (default 100)")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / folder, metavar="DIR")
    records = ROOT / "studies" / folder / "records.jsonl"
    parser.add_argument(
        "--records", type=Path, default=records, metavar="FILE", help="figures of finished runs (default %(default)s)"
    )


def about(options: Namespace) -> dict:
    """When, where and with which code the figures of a record are measured."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "hardware": hardware("cpu"),
        "bf16": has_bf16(),
        "quick": options.quick,
        "episodes": options.limit,
    }


def by_arm(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each arm, in their order."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.name, []).append(run)
    return found


def place_output(options: Namespace) -> None:
    """Quick runs have a folder of their own; `options.data` is in the output by default."""
    if options.quick:
        options.output /= "quick"
    if options.data is None:
        options.data = options.output / "data"


def check_seeds(parser: ArgumentParser, options: Namespace) -> None:
    if len(set(options.seeds)) < len(options.seeds):
        parser.error("--seeds: one of them occurs twice")


def parsed(parser: ArgumentParser, quick_steps: int, quick_limit: int) -> Namespace:
    """The options, with those of --quick applied."""
    options = parser.parse_args()
    options.records = Records(None if options.quick else options.records)
    check_seeds(parser, options)
    if options.quick:
        options.seeds, options.limit, options.tasks = options.seeds[:1], quick_limit, 2
        options.steps = quick_steps if options.steps is None else options.steps
    return options
