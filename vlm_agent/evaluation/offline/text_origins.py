"""Where the texts come from that an agent reads in an offline evaluation: a line for each in the report.

An annotation knows the goal and the true action, so no phone provides it. Those of `vlm-agent annotate`, which are
named in the manifest of the shards, know less. A recorded text that equals what the screen's elements and activity
give (`texts/phone.py`) is counted as the phone's.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.episodes import Episode
from vlm_agent.texts.phone import result_text, screen_text

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
            yield part, _origin(None if step.coat is None else getattr(step.coat, part), phone)


def _origin(text: str | None, phone: str | None) -> str:
    """`text`: the recorded one, None if the step has no such texts. `phone`: what a phone gives, None for texts that no
    phone gives."""
    if phone is not None and text in (None, phone):
        return PHONE
    if not text:
        return MISSING
    return DEMONSTRATION if phone is None else ANNOTATION
