"""Tasks that failed, again with a demonstration (VisionTasker, section 7.4), with a text model trained from nothing.

    python -m studies.vision_tasker.demonstrations [--quick] [--steps N] [--keys KEY=VALUE …]

1. Data: `vlm-agent simulate` (--simulated episodes), a store of demonstrations of other train episodes, the expert's
   traces in the browser phone's settings.
2. Chats of VisionTasker's agent on HTML (eval/agents/vision_tasker_html.yaml). In half of the episodes, chosen by a
   digest, prompts have the demonstration of the store with the nearest goal.
3. Training of the text model on them (recipes/comparison/text_chats_tiny.yaml), and `transformers serve`.
4. Tasks of the test split without a demonstration. The expert does those that fail, on the same phone; its actions in
   words enter a store, as by `vlm-agent record --trace`.
5. The failed tasks again, on each phone: without a demonstration, with their own (the nearest of the store), and with
   an unrelated one in its place, of the half of the store whose goals are least similar.

Phones: the same; another size (a pad); another theme, with another app drawer; the settings of the browser phone; the
same settings in German, while goals and demonstrations stay English. The phone's own language row translates nothing.
No goal of the settings is both trained on and tested.

Per phone and arm: `progress`, the share of the expert's steps that the agent did in their order, which is the main
measure, because a tiny model seldom solves a task; `success` and `reached` as in `vlm-agent evaluate --online`; `shown
its own`, whether the nearest demonstration is that of the task. The differences are paired over tasks, with bootstrap
intervals and McNemar's exact test. On the phones on which the tasks were chosen because they failed, `without` has no
success by definition: there, compare the own demonstration with the unrelated one.

Every stage resumes after a kill and prints the time left; the figures of a phone are also in --records. A folder holds
one set of sizes. Prints tables, writes --output/demonstrations.json; the last line of output is JSON.

Cost on one free core, from the CPU time of parts: data 2 min, store and chats 1 min, traces in the settings 12 min,
training 40 min (0.8 s a step), attempts 40 min (at most 450, 0.3 s a reply of a dozen tokens).
"""

import argparse
import hashlib
import json
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rich.console import Console

from studies.ablation.records import Records
from studies.ablation.runs import ROOT, about, recipe_digest
from studies.ablation.tables import show_rows
from studies.vision_tasker.demonstrations.attempts import EXPERT, Attempt, Player, run_attempts
from studies.vision_tasker.demonstrations.figures import ARMS, OWN, WITHOUT, figures_of, task_row
from studies.vision_tasker.demonstrations.learning import AGENT, RECIPE, train
from studies.vision_tasker.demonstrations.phones import PAD, Phones, SimulatedPhones
from studies.vision_tasker.demonstrations.settings import SettingsPhones, seeds_of
from vlm_agent.agents.examples.encoder import WORDS, goal_encoder
from vlm_agent.agents.examples.store import Demonstration, Demonstrations
from vlm_agent.agents.loading import agent_settings
from vlm_agent.agents.vision_tasker.agent import VisionTaskerAgent
from vlm_agent.agents.vision_tasker.prompts import PROMPTS
from vlm_agent.files import sha256_of, write_json
from vlm_agent.files.jobs import Job
from vlm_agent.models.serving import served_model

SIZES = {
    "simulated": (1600, 60, "episodes to simulate, of all splits"),
    "episodes": (1200, 6, "train episodes of the chats, and as many others in the store"),
    "settings_episodes": (100, 2, "recorded tasks in the settings for the chats, and as many for the store"),
    "steps": (3000, 4, "training steps"),
    "tasks": (40, 2, "tasks on simulated phones"),
    "settings_tasks": (16, 1, "tasks in the settings"),
}
"""Option → its default, its default with --quick, and its help."""

MAX_TOKENS = 80
"""Limit of a reply. Replies of the chats have fewer; one that does not end costs no more."""


@dataclass
class ShownAgents:
    """The agents of the arms, with one model, that of `run`, which is served from the first of them that is needed."""

    run: Path
    output: Path
    store: Demonstrations
    stack: ExitStack

    @cached_property
    def without(self) -> VisionTaskerAgent:
        url, model = self.stack.enter_context(served_model(self.run, self.output / "server.log"))
        settings = {"endpoint": url, "model": model, "concurrency": 1, "calls": str(self.output / "calls")}
        return agent_settings(str(AGENT), overrides=settings | {"max_tokens": MAX_TOKENS}).load()

    def player(self, arm: str, task: str, goal: str) -> Player:
        if arm == WITHOUT:
            return Player(self.without)
        shown = nearest(self.store, goal) if arm == OWN else unrelated(self.store, task, goal)
        return Player(replace(self.without, nearest=lambda _: shown), shown.number)


def nearest(store: Demonstrations, goal: str) -> Demonstration:
    """What the agent's setting `demonstrations` shows."""
    found = store.nearest(goal, goal_encoder(WORDS))
    if found is None:
        raise AssertionError(f"{store.path} is empty, and an arm with demonstrations runs")
    return found


def unrelated(store: Demonstrations, task: str, goal: str) -> Demonstration:
    """One of the less similar half of the store; the same at every call."""
    ranked = store.ranked(goal, goal_encoder(WORDS))
    return random.Random(f"unrelated {task}").choice(ranked[(len(ranked) + 1) // 2 :])[1]


def groups_of(options: argparse.Namespace) -> list[list[Phones]]:
    """Phones with the same tasks; on the first of each group the demonstrations are recorded."""
    settings = seeds_of(options.settings_tasks, tested=True)
    return [
        [
            SimulatedPhones("same phone", options.tasks),
            SimulatedPhones("another size", options.tasks, PAD),
            SimulatedPhones("another theme", options.tasks, has_other_theme=True),
        ],
        [SettingsPhones("settings", settings), SettingsPhones("settings in German", settings, is_translated=True)],
    ]


def main() -> None:
    options = parse()
    console = Console(width=170)
    plan = {name: getattr(options, name) for name in (*SIZES, "seed", "keys")}
    plan |= {"recipe": recipe_digest(RECIPE, dict(options.keys)), "sources": sha256_of([AGENT, *PROMPTS.values()])}
    key = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:8]
    job = Job(options.output, "the benchmark of demonstrations")
    job.write_or_verify_plan(json.loads(json.dumps(plan)))
    # An exception ends the served model, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; run the same command again to resume"))
    with job.locked():
        phones = measure(options, key, console)
    show(phones)
    record = about(options) | {"plan": plan, "phones": phones}
    write_json(options.output / "demonstrations.json", record)
    print(json.dumps(record))


def measure(options: argparse.Namespace, key: str, console: Console) -> dict[str, dict]:
    """The figures of each phone; recorded ones are read."""
    groups = groups_of(options)
    keys = {phones.name: f"{key}, {phones.name}" for group in groups for phones in group}
    known = {name: options.records.find(of_phones) for name, of_phones in keys.items()}
    if all(known.values()):
        return known
    output, store = options.output / "attempts", Demonstrations(options.output / "shown.sqlite")
    run = train(options, console)
    with ExitStack() as stack:
        players = ShownAgents(run, options.output, store, stack).player
        first = [
            Attempt(group[0], arm, number, output)
            for group in groups
            for number in range(group[0].tasks)
            for arm in (EXPERT, WITHOUT)
        ]
        run_attempts(first, players, console)
        failed = [record_failed(store, [one for one in first if one.phones == group[0]]) for group in groups]
        arms = ARMS if len(store.all()) > 1 else ARMS[:2]
        again = [
            Attempt(phones, arm, number, output)
            for group, of_group in zip(groups, failed, strict=True)
            for phones in group
            for number in of_group
            for arm in (EXPERT, *arms)
        ]
        run_attempts(again, players, console)
    figures = {}
    for group, of_group in zip(groups, failed, strict=True):
        for phones in group:
            figures[phones.name] = of_phones(phones, of_group, arms, output)
            options.records.add(keys[phones.name], figures[phones.name])
    return figures


def record_failed(store: Demonstrations, attempts: Sequence[Attempt]) -> dict[int, int]:
    """{number of a failed task: number of its demonstration}. A task for which the expert does nothing but to end it
    has none, and is left out."""
    found = {}
    for attempt in attempts:
        expert = attempt.of_expert().result
        if attempt.arm == WITHOUT and not attempt.result["success"] and expert["lines"]:
            found[attempt.number] = store.add(expert["goal"], "", expert["lines"]).number
    return found


def of_phones(phones: Phones, failed: dict[int, int], arms: Sequence[str], output: Path) -> dict:
    rows = {
        arm: [task_row(Attempt(phones, arm, number, output), own) for number, own in failed.items()] for arm in arms
    }
    without = [Attempt(phones, WITHOUT, number, output) for number in range(phones.tasks)]
    attempted = [one for one in without if one.is_done]
    return {"attempted": len(attempted), "solved without": sum(one.result["success"] for one in attempted)} | (
        figures_of(rows) | {"rows": rows}
    )


def show(found: dict[str, dict]) -> None:
    table, differences = [], []
    for name, of_name in found.items():
        for arm, row in of_name["arms"].items():
            edges = " ".join(f"{edge:.0f}" for edge in row["interval of success"] or ())
            shown = row | {
                "interval of success": edges,
                "shown its own": "" if arm == WITHOUT else row["shown its own"],
            }
            table.append({"phone": name, "arm": arm, "failed tasks": of_name["tasks"]} | shown)
        for row in of_name["differences"]:
            compared = {"phone": name, "difference of": f"{row['better']} - {row['worse']}", "in": row["measure"]}
            edges = " ".join(f"{edge:.1f}" for edge in row["interval"] or ())
            rest = {key: row.get(key) for key in ("gained", "lost", "McNemar p")}
            differences.append(compared | {"points": row["difference"], "interval": edges} | rest)
    show_rows("Failed tasks again, %", table)
    show_rows("Differences, paired over tasks", differences)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four steps, four tasks: does everything run?")
    for name, (default, _, text) in SIZES.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, metavar="N", help=f"{text} (default {default})")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the training (default 0)")
    parser.add_argument(
        "--keys", nargs="+", default=[], type=_key, metavar="KEY=VALUE", help="of the recipe, for its size for example"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="simulated shards (default OUTPUT/data)")
    parser.add_argument("--output", type=Path, default=ROOT / "build/demonstrations", metavar="DIR")
    records = ROOT / "studies/vision_tasker/demonstrations/records.jsonl"
    parser.add_argument("--records", type=Path, default=records, metavar="FILE", help="figures (default %(default)s)")
    options = parser.parse_args()
    for name, (default, quick, _) in SIZES.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else default)
    options.records = Records(None if options.quick else options.records)
    options.output = options.output / "quick" if options.quick else options.output
    options.data = options.output / "data" if options.data is None else options.data
    options.limit = options.episodes
    return options


def _key(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


if __name__ == "__main__":
    main()
