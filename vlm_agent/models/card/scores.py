"""Scores on a model card: a table for readers, and the Hub's `model-index` for programs."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from huggingface_hub import EvalResult

from vlm_agent.models.card.usage import code, plain, portable, table


@dataclass(frozen=True)
class Share:
    """A percentage of one run of an evaluation, with its 95 % interval; None where it is undefined."""

    name: str
    value: float | None
    interval: Sequence[float] | None

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        if self.interval is None or None in self.interval:
            return f"{self.value:.1f}"
        return f"{self.value:.1f} ({self.interval[0]:.1f} – {self.interval[1]:.1f})"


@dataclass(frozen=True)
class Scores:
    """One evaluation. `rows`: shares of each run, the agent's first; the runs have the same columns.

    `about`: the split and how much of it; `revision`: the sha256 of the manifest of the shards, None for tasks on
    simulated phones; `command`: the words that evaluate the model again; `notes`: what the files in it hold.
    """

    data: str
    split: str
    about: str
    revision: str | None
    rows: Sequence[tuple[str, Sequence[Share]]]
    command: Sequence[str]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        columns = [f"{share.name}, %" for share in self.rows[0][1]]
        rows = [(name, *shares) for name, shares in self.rows]
        digest = "" if self.revision is None else f"; sha256 of the manifest `{self.revision}`"
        return "\n\n".join(
            [
                f"### {plain(portable(self.data))}: {plain(self.about)}",
                f"Percentages with 95 % intervals{digest}.",
                table(["", *columns], rows),
                code(shlex.join(portable(list(self.command)))),
                *(plain(note) for note in self.notes),
            ]
        )

    def results(self) -> list[EvalResult]:
        """The results of the model itself, without controls and baselines."""
        data = " ".join(str(portable(self.data)).split())
        return [
            EvalResult(
                task_type="image-text-to-text",
                task_name="operating a phone",
                dataset_type=re.sub(r"[^A-Za-z0-9._-]+", "-", data),
                dataset_name=data,
                dataset_split=self.split,
                dataset_revision=self.revision,
                metric_type="accuracy",
                metric_name=share.name,
                metric_value=round(share.value, 2),
                metric_args=None if share.interval is None else {"interval_95": [round(x, 2) for x in share.interval]},
            )
            for share in self.rows[0][1]
            if share.value is not None
        ]
