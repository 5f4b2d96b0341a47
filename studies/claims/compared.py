"""Verdicts: how the records of a claim's runs are compared, with each other or with the paper's number."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from studies.ablation.figures import paired
from vlm_agent.evaluation.scoring.measures import wilson

HOLDS, OPPOSITE, UNDECIDED = "holds", "opposite", "undecided"
NOT_REACHED, NOT_MEASURED = "not reached", "not measured"


@dataclass(frozen=True)
class Setting:
    """Runs that share a model, an action language and demonstrations, and `runs`, their records by key.

    `key`: the key of a run, where {arm}, {seed} and {digest} stand for parts of it. `weights`: what a cell writes in
    place of the number of seeds where nothing is trained.
    """

    runs: Mapping[str, Mapping]
    name: str
    demonstrations: int | None = None
    key: str = ""
    weights: str = ""

    def seeds_of(self, arm: str) -> dict[int, Mapping]:
        """Seed → the record of an arm; of its newest recipe and precision if several have records."""
        parts = {"{digest}": "(?P<digest>[0-9a-f]{8})", "{seed}": r"(?P<seed>\d+)", "{arm}": re.escape(arm)}
        pattern = re.escape(self.key)
        for name, part in parts.items():
            pattern = pattern.replace(re.escape(name), part)
        pattern += "(?P<precision>, bfloat16)?"  # `Run.key`
        found = [(match, run) for key, run in self.runs.items() if (match := re.fullmatch(pattern, key))]
        kinds = [(match.groupdict().get("digest"), match["precision"]) for match, _ in found]
        return {int(match["seed"]): run for (match, run), kind in zip(found, kinds, strict=True) if kind == kinds[-1]}


@dataclass(frozen=True)
class Found:
    """`here`: the figures of a claim as a cell writes them. `seeds`: the number of trained models behind them."""

    here: str
    verdict: str
    seeds: int


def by_seeds(setting: Setting, claim: Mapping, _: float | None) -> Found:
    """The figure of `better` minus that of `worse`, paired by seed, with Student's interval. `less`: the path of
    another figure that `worse` has."""
    arms = (claim["better"], claim["worse"])
    paths = (claim["path"], claim.get("less", claim["path"]))
    better, worse = (
        {seed: {"": at(run, path)} for seed, run in setting.seeds_of(arm).items()}
        for arm, path in zip(arms, paths, strict=True)
    )
    rows = paired(better, worse, ("",))
    row = rows.get("", {"mean": None})
    if row["mean"] is None:
        return Found("no record", NOT_MEASURED, 0)
    half = "" if row["half"] is None else f" ± {row['half']:.1f}"
    verdict = row["verdict"] if row["half"] is not None else UNDECIDED
    return Found(f"{points(row['mean'])}{half}", verdict, row["seeds"])


def by_intervals(setting: Setting, claim: Mapping, _: float | None) -> Found:
    """Recorded differences of `runs`, one for each seed, with intervals over episodes or tasks. The verdict is that of
    all seeds, or undecided; None is the interval of differences that are all equal."""
    found = [at(setting.runs.get(run, {}), claim["path"]) for run in claim["runs"]]
    if any(one is None for one in found):
        return Found("no record", NOT_MEASURED, 0)
    verdicts, cells = [], []
    for one in found:
        low, high = one["interval"] or (one["difference"],) * 2
        verdicts.append(of_sign(low, high))
        cells.append(f"{points(one['difference'])} {interval(low, high) if low < high else ''}".rstrip())
    return Found("; ".join(cells), of_all(verdicts) if len(found) > 1 else UNDECIDED, len(found))


def by_counts(setting: Setting, claim: Mapping, _: float | None) -> Found:
    """Two shares of a run, [right, of], with Wilson intervals."""
    run = setting.runs.get(claim["run"], {})
    shares = [share_at(run, claim[name]) for name in ("better", "worse")]
    if None in shares:
        return Found("no record", NOT_MEASURED, 0)
    (_, *better), (_, *worse) = ((right, *wilson(right, of)) for right, of in shares)
    verdict = HOLDS if better[0] > worse[1] else OPPOSITE if better[1] < worse[0] else UNDECIDED
    return Found(" against ".join(share(right, of) for right, of in shares), verdict, 0)


def by_level(setting: Setting, claim: Mapping, printed: float | None) -> Found:
    """Shares of `runs`, one for each seed, against the paper's percentage: not reached if each interval is below it."""
    shares = [share_at(setting.runs.get(run, {}), claim) for run in claim["runs"]]
    if None in shares or printed is None:
        return Found("no record", NOT_MEASURED, 0)
    edges = [wilson(right, of) for right, of in shares]
    verdict = of_all([NOT_REACHED if high < printed else HOLDS if low > printed else UNDECIDED for low, high in edges])
    return Found("; ".join(share(right, of) for right, of in shares), verdict, len(shares))


def exact(setting: Setting, claim: Mapping, _: float | None) -> Found:
    """Two numbers that are counted, not sampled; the claim is that the first is the lower one."""
    run = setting.runs.get(claim["run"], {})
    lower, higher = (at(run, claim[name]) for name in ("lower", "higher"))
    if lower is None or higher is None:
        return Found("no record", NOT_MEASURED, 0)
    verdict = HOLDS if lower < higher else OPPOSITE if lower > higher else UNDECIDED
    return Found(f"{lower:,.0f} against {higher:,.0f}", verdict, 0)


def by_correlation(setting: Setting, claim: Mapping, _: float | None) -> Found:
    """Pearson's correlation of a score with success over the checkpoints of a record, with Fisher's 95 % interval."""
    rows = at(setting.runs.get(claim["run"], {}), ["checkpoints"])
    if not isinstance(rows, list):
        return Found("no record", NOT_MEASURED, 0)
    from scipy.stats import pearsonr  # takes a second to import

    found = pearsonr([row[claim["score"]] for row in rows], [row["success"] for row in rows])
    low, high = found.confidence_interval()
    return Found(f"r {found.statistic:.2f} [{low:.2f}, {high:.2f}] over {len(rows)} checkpoints", of_sign(low, high), 0)


def unmeasured(_: Setting, claim: Mapping, __: float | None) -> Found:
    return Found(claim["reason"], NOT_MEASURED, 0)


HOW: Mapping[str, Callable[[Setting, Mapping, float | None], Found]] = {
    "seeds": by_seeds,
    "intervals": by_intervals,
    "counts": by_counts,
    "level": by_level,
    "exact": exact,
    "correlation": by_correlation,
    "unmeasured": unmeasured,
}
"""The word of claims.yaml → the comparison."""


def at(run: object, path: Sequence) -> object:
    """The figure at a path of keys, None where the record lacks it. In a list of mappings, a mapping in the path stands
    for the one that has its items."""
    for key in path:
        if isinstance(run, Mapping):
            run = run.get(key)
        elif isinstance(run, Sequence) and isinstance(key, Mapping):
            run = next((one for one in run if key.items() <= one.items()), None)
        elif isinstance(run, Sequence) and not isinstance(run, str):
            run = run[key]
        else:
            return None
    return run


def share_at(run: Mapping, paths: Mapping) -> tuple[int, int] | None:
    right = at(run, paths["right"])
    of = paths["of"] if isinstance(paths["of"], int) else at(run, paths["of"])
    return None if right is None or of is None else (right, of)


def of_sign(low: float, high: float) -> str:
    """The verdict of an interval of what the claim says is above 0."""
    return HOLDS if low > 0 else OPPOSITE if high < 0 else UNDECIDED


def of_all(verdicts: Sequence[str]) -> str:
    return verdicts[0] if len(set(verdicts)) == 1 else UNDECIDED


def share(right: int, of: int) -> str:
    return f"{right} of {of} {interval(*wilson(right, of))}"


def interval(low: float, high: float) -> str:
    return f"[{number(low)}, {number(high)}]"


def number(value: float) -> str:
    return f"{value:z.1f}".replace("-", "−")


def points(value: float) -> str:
    """A difference with its sign."""
    return f"{value:+.1f}".replace("-", "−")
