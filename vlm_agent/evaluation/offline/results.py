"""The report and the terminal's tables of an evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from vlm_agent.agents import NoAnswerError
from vlm_agent.agents.llm.client import retry_advice
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.evaluation.about import AGENT, LISTED, controls_fact, elements_fact, names_in_tables, trained_on_fact
from vlm_agent.evaluation.offline.baselines import NEAREST_ELEMENT
from vlm_agent.evaluation.offline.parts import AnswerCounts, Parts
from vlm_agent.evaluation.offline.plan import TEXTS, Plan
from vlm_agent.evaluation.predictions import prediction_batches
from vlm_agent.evaluation.report import write_report
from vlm_agent.evaluation.report.published import published_tables, split_sentences
from vlm_agent.evaluation.report.terminal import (
    aitz_tables,
    comparison_table,
    cost_tables,
    example_line,
    parse_failure_table,
)
from vlm_agent.evaluation.scoring.judged import JudgedSteps
from vlm_agent.files.console import print_plain


@dataclass(frozen=True)
class Results:
    """`scores`: by run, as metrics.json holds them. `predictions`: the file of the agent's own run, whose steps are
    `judged` and whose answers are counted in `counts`."""

    plan: Plan
    scores: Mapping[str, dict]
    predictions: Path
    judged: JudgedSteps
    counts: AnswerCounts

    def write(self, dataset: ShardDataset, parts: Parts) -> None:
        """Writes report.html beside the predictions."""
        plan, benchmark = self.plan, self.plan.benchmark
        facts = {} if benchmark.name is None else {"benchmark": benchmark.name}
        facts |= {
            "agent": plan.place,
            **elements_fact(plan.agent),
            "shards": str(benchmark.shards),
            "split": f"{self._about['split']}, {self._episodes} of {self._about['episodes_in_split']} episodes",
            **trained_on_fact(plan.trained_on, self._episodes),
            **controls_fact(plan.agent, plan.runs),
            **self._about.get(TEXTS, {}),
            **self.counts.facts(),
            **_reach_fact(self.scores),
        }
        place = f" – {plan.place}" if plan.place != plan.label else ""
        write_report(
            parts.output / "report.html",
            self._shown,
            self.predictions,
            dataset,
            facts,
            title=f"{plan.label} on {benchmark.name or f'{benchmark.shards.name} {benchmark.split}'}{place}",
            judged=self.judged,
            language=plan.language(),
        )

    def print(self, console: Console) -> None:
        plan, benchmark, names = self.plan, self.plan.benchmark, names_in_tables(self.plan.runs, self.plan.label)
        title = f"Partial match on {benchmark.split}, %: official, strict below"
        if lines := self.counts.unwritable:
            head = f"The agent's tokenizer cannot write {len(lines):,} demonstrated actions, so no answer equals them; "
            text = "\n".join([f"{head}metrics.json lists the first {LISTED}:", *(f"  {line}" for line in lines[:5])])
            print_plain(console, text)
        console.print(comparison_table(self._shown, title if benchmark.name is None else f"{benchmark.name}. {title}"))
        for table in (*aitz_tables(self._shown), *cost_tables(self._shown)):
            console.print(table)
        if "published_split" in self._about:
            text = " ".join(split_sentences(published_tables(), self._about))
            print_plain(console, f"Published numbers: {text.strip()}")
        console.print(parse_failure_table({name: self.scores[run] for run, name in names.items()}))
        rows = chain.from_iterable(prediction_batches(self.predictions))
        if line := example_line(plan.label, self.scores[AGENT], rows, plan.language()):
            print_plain(console, line)
        facts = trained_on_fact(plan.trained_on, self._episodes) | elements_fact(plan.agent)
        facts |= controls_fact(plan.agent, plan.runs) | self.counts.printed_facts() | _reach_fact(self.scores)
        for fact, text in facts.items():
            print_plain(console, f"{fact}: {text}")

    @property
    def _about(self) -> dict[str, Any]:
        return self.scores[AGENT]["about"]

    @property
    def _episodes(self) -> int:
        return self._about["episodes"]

    @property
    def _shown(self) -> dict[str, dict]:
        return {name: self.scores[run] for run, name in names_in_tables(self.scores, self.plan.label).items()}


def raise_for_failed(failed: Sequence[str], again: str) -> None:
    """Raises NoAnswerError if there are lines of failed steps. `again`: what to do to request these answers."""
    if failed:
        advice = retry_advice(failed, again)
        raise NoAnswerError(
            f"the agent could not answer {len(failed)} step(s); first error: {failed[0]}; they count as wrong and are "
            f"listed in metrics.json (failed_steps); {advice}"
        )


def _reach_fact(scores: Mapping[str, dict]) -> dict[str, str]:
    if NEAREST_ELEMENT not in scores:
        return {}
    counts = scores[NEAREST_ELEMENT]["about"]["gold_taps"]
    taps, beside = counts["taps"], counts["on_no_element"]
    share = f" ({100 * beside / taps:.1f} %)" if taps else ""
    return {
        "taps on no element": f"{beside:,} of {taps:,} demonstrated ones{share}: this action language can only write "
        "the nearest element; the run nearest element is the score of all demonstrated actions as it writes them"
    }
