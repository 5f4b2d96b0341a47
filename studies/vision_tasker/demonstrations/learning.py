"""The text model that reads demonstrations: data, chats, training.

OUT/others.sqlite       demonstrations of train episodes that no chat is about
OUT/settings/           traces of the expert in the settings, and their shards
OUT/chats/              a file for the simulated phone and one for the settings
OUT/run/                the training run
"""

from argparse import Namespace
from pathlib import Path

import yaml
from rich.console import Console

from studies.ablation.data import make_data
from studies.ablation.runs import ROOT, command
from studies.vision_tasker.demonstrations.attempts import EXPERT, Attempt, Player, run_attempts
from studies.vision_tasker.demonstrations.settings import SettingsPhones, seeds_of
from vlm_agent.agents.examples.store import Demonstrations
from vlm_agent.datasets.shards.dataset import MANIFEST
from vlm_agent.devices.acting.demonstrating.lines import lines_of
from vlm_agent.devices.acting.demonstrating.observed import Observed, ObservedAction, ObservedScreen
from vlm_agent.episodes import Episode
from vlm_agent.files.console import Progress
from vlm_agent.simulator.demonstrations import phone_seed, subset_of
from vlm_agent.simulator.opening import SimulatedTask
from vlm_agent.training.run_folder.layout import FINISHED

RECIPE = ROOT / "recipes/comparison/text_chats_tiny.yaml"
AGENT = ROOT / "eval/agents/vision_tasker_html.yaml"
SHARE = 0.5
"""Share of episodes whose prompts have a demonstration."""

OTHER_SEED = 1
"""Seed of the store's simulation. Seed 0 simulates the episodes of the chats and the tasks."""

TRAINED_ON, STORED = "chats", "store"


def train(options: Namespace, console: Console) -> Path:
    """Makes what is missing, and returns the folder of the run; every part resumes or starts again after a kill."""
    run = options.output / "run"
    if (run / FINISHED).is_file():
        return run
    make_data(options.data, options.simulated)
    store = Demonstrations(options.output / "others.sqlite")
    settings = settings_traces(options, console)
    fill(store, options.episodes, [one for one in settings if one.phones.name == STORED], console)
    write_chats(options, store)
    keys = [word for key, value in options.keys for word in (f"--{key}", value)]
    chats = ("--data.chats", options.output / "chats", "--training.steps", options.steps)
    command("train", "--config", RECIPE, "--output", run, "--seed", options.seed, *chats, *keys)
    return run


def settings_traces(options: Namespace, console: Console) -> list[Attempt]:
    """Attempts of the expert: half of the tasks are for chats, the other half for the store."""
    seeds = seeds_of(2 * options.settings_episodes, tested=False)
    half = len(seeds) // 2
    groups = (SettingsPhones(TRAINED_ON, seeds[:half]), SettingsPhones(STORED, seeds[half:]))
    attempts = [
        Attempt(phones, EXPERT, number, options.output / "settings/traces")
        for phones in groups
        for number in range(phones.tasks)
    ]
    run_attempts(attempts, no_players, console)
    return attempts


def no_players(arm: str, task: str, goal: str) -> Player:
    raise AssertionError(f"only the expert records demonstrations, and {arm} was asked for {task}")


def fill(store: Demonstrations, episodes: int, settings: list[Attempt], console: Console) -> None:
    """Adds the train episodes of another seed, and the settings; an interrupted call starts again."""
    if store.all():
        return
    rows = []
    with Progress(console, episodes, "demonstrations").shown() as progress:
        for number in range(episodes):
            episode = train_episode((OTHER_SEED << 32) + number)
            steps = episode.steps
            shown = [ObservedAction(step.action, ObservedScreen(step.activity, step.elements)) for step in steps]
            rows.append((episode.goal, "", lines_of(Observed(shown)).lines))
            progress.advance(1, "store of other episodes")
    rows += [(one.result["goal"], "", one.result["lines"]) for one in settings]
    store.add_all([row for row in rows if row[2]])


def train_episode(seed: int) -> Episode:
    """The episode that `vlm-agent simulate` would write, without pixels."""
    number = phone_seed(seed, "train")
    phone, task = SimulatedTask(subset_of(number), "train", number).fresh_phone()
    return Episode(str(number), task.subset, task.goal, task.solve(phone, pixels=False))


def write_chats(options: Namespace, store: Demonstrations) -> None:
    agent = options.output / "chats.yaml"
    content = yaml.safe_load(AGENT.read_text(encoding="utf-8"))
    content |= {"demonstrations": str(store.path), "demonstrated_chats": SHARE}
    agent.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    traces, shards = options.output / "settings/traces" / TRAINED_ON, options.output / "settings/shards"
    if not (shards / MANIFEST).is_file():
        command("convert", "--source", "trace", "--input", traces, "--output", shards)
    for name, folder in {"simulated": options.data / "shards", "settings": shards}.items():
        output = options.output / "chats" / f"{name}.jsonl"
        if not output.is_file():
            command("chats", folder, "--agent", agent, "--limit", options.episodes, "--output", output)
