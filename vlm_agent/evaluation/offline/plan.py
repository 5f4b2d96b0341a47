"""The plan of an offline evaluation, OUT/plan.json: settings that decide the predictions, and others for the report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlm_agent.action_languages import ActionLanguage, language_settings
from vlm_agent.datasets.shards.dataset import manifest_digest
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.about import AGENT, GREY, READ_ELEMENTS, names_in_tables
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.report.terminal import failed_steps
from vlm_agent.evaluation.scoring.judged import Groups
from vlm_agent.files import parsing, read_checked, write_checked
from vlm_agent.files.jobs import Job, differences

PLAN = "plan.json"
METRICS = "metrics.json"
VERSION = 1
TEXTS = "texts"
"""The key of `about` in metrics: the origin of each text that the agent read."""
_NAMES_REMEDY = "move it to another folder; the run then has the name of its predictions file"
_OF_AGENT = ("agent", "language", "text_inputs", READ_ELEMENTS, GREY)
"""The keys of `about.agent_identity`."""


@dataclass(frozen=True)
class Plan:
    """`agent` is the result of `about.agent_identity`, `place` the agent's path or address, `runs` are the agent's own
    and its controls.

    `text_notes` and `label` (`run_label`) are those of the agent's settings, `trained_on` is the result of
    `about.trained_on`.
    """

    agent: dict[str, Any]
    place: str
    benchmark: Benchmark
    runs: list[str]
    text_notes: dict[str, str] = field(default_factory=dict)
    label: str = AGENT
    trained_on: dict[str, Any] = field(default_factory=dict)

    def language(self) -> ActionLanguage:
        return language_settings(self.agent["language"]).build()

    def identity(self) -> dict[str, Any]:
        """The settings that commands writing to one folder must share. Paths are excluded: they differ by machine."""
        return {
            "version": VERSION,
            **self.agent,
            "shards": manifest_digest(self.benchmark.shards),
            "split": self.benchmark.split,
            "limit": self.benchmark.limit,
            **({"draw": self.benchmark.draw} if self.benchmark.draw else {}),
            "runs": self.runs,
        }


def job(output: Path) -> Job:
    """The resumable output folder of an evaluation."""
    return Job(output, "an evaluation", PLAN, lock="parts/lock", identity_key="described")


def update_plan(output: Path, plan: Plan) -> None:
    """Records the settings that do not decide predictions, such as scorers and groups, as the newest command has them:
    `finish` and later commands then score as it does. The caller holds the lock of `output`."""
    before, settings = job(output).read_plan(), other_settings(plan)
    if before.get("given") != json.loads(json.dumps(settings)):
        write_checked(job(output).plan_path, before | {"given": settings})


def other_settings(plan: Plan) -> dict[str, Any]:
    split = plan.benchmark.published_split
    return {
        "place": plan.place,
        "shards": str(plan.benchmark.shards),
        "groups": plan.benchmark.episode_groups(),
        "benchmark": plan.benchmark.name,
        "dialect": plan.benchmark.dialect,
        "further_dialects": plan.benchmark.further_dialects,
        "published_split": None if split is None else split.model_dump(mode="json"),
        "text_notes": plan.text_notes,
        "label": plan.label,
        "trained_on": plan.trained_on,
    }


def predictions_name(run: str) -> str:
    """The name of a run's predictions file in the output folder."""
    return "predictions.parquet" if run == AGENT else f"predictions_{run}.parquet"


def recorded_settings(predictions: Path) -> tuple[Groups | None, ActionLanguage] | None:
    """The groups of an evaluation and the agent's language, from the plan beside a predictions file. None without a
    plan, and for a file that is not of one of its runs. Raises DatasetError naming the plan if it is damaged."""
    found = _recorded(predictions)
    if found is None:
        return None
    identity, others, _ = found
    with parsing(predictions.parent / PLAN, _NAMES_REMEDY):
        return others["groups"], language_settings(identity["language"]).build()


def recorded_name(predictions: Path) -> str | None:
    """What the evaluation that wrote a predictions file calls its run in tables, by the plan beside the file.

    None without a plan, and for a file that is not of one of its runs. Raises DatasetError naming the plan if it is
    damaged.
    """
    found = _recorded(predictions)
    if found is None:
        return None
    identity, others, run = found
    with parsing(predictions.parent / PLAN, _NAMES_REMEDY):
        return names_in_tables(identity["runs"], others["label"])[run]


def _recorded(predictions: Path) -> tuple[dict[str, Any], Any, str] | None:
    """The record of the plan beside a predictions file: the identity, the other settings, and which of its runs the
    file is of."""
    path = predictions.parent / PLAN
    if not path.is_file():
        return None
    plan = read_checked(path, _NAMES_REMEDY, dict[str, dict[str, Any]])
    with parsing(path, _NAMES_REMEDY):
        identity, others = plan["described"], plan["given"]
        runs = {predictions_name(run): run for run in identity["runs"]}
    run = runs.get(predictions.name)
    return None if run is None else (identity, others, run)


@dataclass(frozen=True)
class RecordedAbout:
    """What the metrics beside a predictions file say about its run. `episodes`: the number that was scored. `failed`: a
    line for each step that the agent did not answer. `texts`: where the texts that it read come from
    (`text_origins`). `split`: the benchmark, and its `compare_split`, where it has published numbers."""

    episodes: int | None = None
    failed: Sequence[str] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    split: Mapping[str, Any] = field(default_factory=dict)

    def check_episodes(self, predictions: Path, found: int) -> None:
        """Raises DatasetError if the file has another number of episodes than its evaluation scored."""
        if self.episodes not in (None, found):
            raise DatasetError(
                f"{predictions} has {found:,} episodes, but {METRICS} beside it is of {self.episodes:,}; move the "
                "predictions to another folder and run their evaluate command again"
            )

    def facts(self) -> dict[str, str]:
        """Lines of a report."""
        failed = {"failed steps": f"{len(self.failed):,}, counted as wrong"} if self.failed else {}
        return failed | dict(self.texts)

    def warnings(self, predictions: Path) -> list[str]:
        """At most one line for the terminal, which names the file of the run."""
        if not self.failed:
            return []
        return [
            f"{predictions}: the agent failed to answer {len(self.failed):,} step(s), which count as wrong; run the "
            "same evaluate command again to request these answers"
        ]


def recorded_about(predictions: Path) -> RecordedAbout:
    """Empty without a plan or metrics, and for a file that is not of one of their runs. Raises DatasetError
    naming a damaged file."""
    found, path = _recorded(predictions), predictions.parent / METRICS
    if found is None or not path.is_file():
        return RecordedAbout()
    remedy = "evaluate again"
    scores = read_checked(path, remedy, dict[str, dict[str, Any]])
    with parsing(path, remedy):
        of_run = scores.get(found[2], {})
        about = of_run.get("about", {})
        texts = {str(name): str(text) for name, text in about.get(TEXTS, {}).items()}
        split = {key: about[key] for key in ("benchmark", "published_split") if "published_split" in about}
        return RecordedAbout(about.get("episodes"), failed_steps(of_run), texts, split)


def read_plan(output: Path) -> Plan:
    """The plan in `output`. Raises DatasetError if it holds no evaluation, or if the shards have changed."""
    content = job(output).read_plan()
    if content["described"].get("version") != VERSION:
        raise DatasetError(f"{output / PLAN} is not of version {VERSION}; use another folder")
    with job(output).parsing_plan():
        identity, others = content["described"], content["given"]
        language_settings(identity["language"])
        benchmark = Benchmark(
            name=others["benchmark"],
            shards=others["shards"],
            split=identity["split"],
            groups=others["groups"],
            limit=identity["limit"],
            **identity.get("draw", {}),
            dialect=others["dialect"],
            further_dialects=others["further_dialects"],
            published_split=others["published_split"],
        )
        agent: dict[str, Any] = {key: identity[key] for key in _OF_AGENT if key in identity}
        settings = (others[key] for key in ("text_notes", "label", "trained_on"))
        plan = Plan(agent, others["place"], benchmark, identity["runs"], *settings)
    if changed := differences(identity, plan.identity()):
        raise DatasetError(f"{output}: {benchmark.shards} has changed since the start: {'; '.join(changed)}")
    return plan
