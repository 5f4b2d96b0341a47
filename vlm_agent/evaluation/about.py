"""The identity of an evaluation, and what metrics and report state about it beside its scores.

The identity is the settings that decide the results: an output folder holds one identity only. Beside the scores stand

- the episodes: how many of the split, and whether they are those of published numbers;
- training: how many of the scored episodes the agent's model was trained on. A score on them does not measure
  generalisation;
- texts: where those come from that the agent read. An annotation knows the goal and the true action, so no phone
  provides it. The annotations of `vlm-agent annotate`, which are named in the manifest of the shards, know less. A
  recorded text that equals what the screen's elements and activity give (`texts/phone.py`) is counted as the phone's.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vlm_agent.agents import AgentSettings
from vlm_agent.agents.agent import GREY_PIXELS
from vlm_agent.agents.read_screens import in_words, readers_identity, readers_of
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.evaluation.benchmark import Benchmark
from vlm_agent.evaluation.report.published import compare_split, has_published_numbers, is_published_data
from vlm_agent.files.pages import words
from vlm_agent.screens.understand import Readers
from vlm_agent.texts.phone import result_text, screen_text

READ_ELEMENTS = "elements_read_by"
"""The key of the readers of elements, where these are read from pixels."""

GREY = "grey_screens"
"""The key of what this control hides (`AgentSettings.grey_screens`), and the run under it."""

AGENT = "trained"
"""The key in files of the run of the agent itself, beside its controls and the baselines."""


def names_in_tables(runs: Iterable[str], label: str) -> dict[str, str]:
    """What the terminal and reports call each of the `runs`. The agent's own has the name `label`, the `run_label` of
    its settings, and "(agent)" behind it where another run has this name; the others are in words."""
    names = {run: words(run) for run in runs}
    taken = {*names, *names.values()} - {AGENT}
    return names | ({AGENT: f"{label} (agent)" if label in taken else label} if AGENT in names else {})


def agent_identity(
    settings: AgentSettings, readers: Readers | None = None, controls: Collection[str] = ()
) -> dict[str, Any]:
    """`readers`: of the elements of screens; None for those of the phone or the data set. `controls`: of the
    evaluation."""
    identity: dict[str, Any] = {
        "agent": settings.identity(),
        "language": settings.language.model_dump(mode="json"),
        "text_inputs": list(settings.text_inputs),
    }
    if readers is not None:
        identity[READ_ELEMENTS] = readers_identity(readers)
    if GREY in controls and settings.grey_screens != GREY_PIXELS:
        identity[GREY] = settings.grey_screens
    return identity


def elements_fact(identity: Mapping[str, Any]) -> dict[str, str]:
    """A line for reports, if the elements of screens were read from pixels."""
    readers = identity.get(READ_ELEMENTS)
    return {} if readers is None else {"elements of screens": in_words(readers_of(readers))}


def controls_fact(identity: Mapping[str, Any], runs: Collection[str]) -> dict[str, str]:
    """A line for reports on what a control among `runs` hides, if that differs between agents."""
    return {"grey screens": identity.get(GREY, GREY_PIXELS)} if GREY in runs else {}


def context_fact(beyond: int, answers: int) -> dict[str, str]:
    """A line about answers beyond the context of the agent's model; empty if no answer is."""
    text = f"{beyond:,} of {answers:,}, where a model predicts worse; data.past_screens bounds what a step reads"
    return {"answers beyond the model's context": text} if beyond else {}


LISTED = 20
"""Lines of a kind in metrics.json; all are counted."""

PHONE = "activity and elements of the screen, as any phone gives"
ANNOTATION = "annotation, made with goal and true action known; no phone gives it"
DEMONSTRATION = "demonstration, made with goal and true action known; online the agent reads its own"
MISSING = "empty in the data"

_KNOWN = {"screen": "from the screen alone", "result": "from the screens before and after, with the true action known"}
"""What `vlm-agent annotate` shows its model."""

_NAMES = {
    "screen": "screen descriptions",
    "result": "action results",
    "think": "earlier thoughts",
    "action": "earlier action descriptions",
}


def about_episodes(benchmark: Benchmark, dataset: ShardDataset, chosen: Sequence[int]) -> dict[str, Any]:
    """What metrics record of the scored episodes; `published_split` only for a benchmark with published numbers,
    and data of that kind."""
    about = {
        "benchmark": benchmark.name,
        "split": benchmark.split,
        "episodes": len(chosen),
        "episodes_in_split": len(dataset),
    }
    if not has_published_numbers(benchmark.name) or not is_published_data(dataset):
        return about
    return about | {"published_split": compare_split(benchmark.published_split, dataset, chosen)}


def trained_on(settings: AgentSettings, scored: Iterable[str]) -> dict[str, Any]:
    """`count`: of the episodes with the ids `scored`, those that the model was trained on; `first`: some of their ids;
    `unknown`: why there may be more. {} for an agent without a run."""
    run = settings.learned_by
    if run is None:
        return {}
    from vlm_agent.models.weights.origin import LEARNED_FILE, read_learned

    learned = read_learned(run)
    if learned is None:
        return {"unknown": f"the run has no {LEARNED_FILE}"}
    found = sorted(set(learned.ids) & set(scored))
    counted: dict[str, Any] = {"count": len(found)} | ({"first": found[:LISTED]} if found else {})
    if learned.unknown_base is not None:
        counted["unknown"] = f"the episodes of its base {learned.unknown_base} are not recorded"
    return counted


def trained_on_fact(counted: dict[str, Any], episodes: int) -> dict[str, str]:
    """The line for terminal, report and card, of the result of `trained_on` and the number of scored episodes."""
    if not counted:
        return {}
    known = f"{counted['count']:,} of {episodes:,}" if "count" in counted else ""
    unknown = f"unknown: {counted['unknown']}" if "unknown" in counted else ""
    return {"scored episodes that the run was trained on": "; others ".join(filter(None, [known, unknown]))}


def text_origins(dataset: ShardDataset, chosen: Iterable[int], text_inputs: Sequence[str]) -> dict[str, str]:
    """A line by text input: how many steps read it from where. `text_inputs`: `AgentSettings.text_inputs`."""
    if not text_inputs:
        return {}
    counts: dict[str, Counter[str]] = {part: Counter() for part in text_inputs}
    for index in chosen:
        for part, origin in _origins(dataset.without_pixels(index), text_inputs):
            counts[part][_annotation(dataset, part) if origin == ANNOTATION else origin] += 1
    return {_NAMES[part]: _line(of_part) for part, of_part in counts.items()}


def _annotation(dataset: ShardDataset, part: str) -> str:
    """`ANNOTATION`, or what `vlm-agent annotate` knew. Texts that it kept cannot be distinguished from its own."""
    manifest = dataset.manifest
    if part not in _KNOWN or "annotation" not in manifest or manifest["texts"][part].get("kept"):
        return ANNOTATION
    edited = f", {manifest['steps_edited']:,} steps edited by people" if manifest["steps_edited"] else ""
    return f"annotation by {manifest['annotation']['model']}, {_KNOWN[part]}{edited}; no phone gives it"


def _line(counts: Counter[str]) -> str:
    return "; ".join(f"{count:,} steps: {origin}" for origin, count in counts.most_common()) or "none read"


def _origins(episode: Episode, text_inputs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(text input, its origin) of each text that some step of the episode reads."""
    for number, step in enumerate(episode.steps):
        is_last = number == len(episode) - 1
        for part in text_inputs:
            if is_last and part != "screen":
                continue  # texts that belong to the last action, which no step reads
            phone = None
            if part == "screen":
                phone = screen_text(step.screen)
            elif part == "result":
                phone = result_text(step.screen, episode.steps[number + 1].screen)
            yield part, _origin(step.notes.get(part), phone)


def _origin(text: str | None, phone: str | None) -> str:
    """`text`: the recorded one, None if the step has no such texts. `phone`: what a phone gives, None for texts that no
    phone gives."""
    if phone is not None and text in (None, phone):
        return PHONE
    if not text:
        return MISSING
    return DEMONSTRATION if phone is None else ANNOTATION
