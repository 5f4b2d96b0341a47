"""The identity of an evaluation: the settings that decide its results. An output folder holds one identity only."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from vlm_agent.agents import AgentSettings
from vlm_agent.agents.agent import GREY_PIXELS
from vlm_agent.agents.read_screens import in_words, readers_identity, readers_of
from vlm_agent.files.pages import words
from vlm_agent.screens.understand import Readers

READ_ELEMENTS = "elements_read_by"
"""The key of the readers of elements, where these are read from pixels."""

GREY = "grey_screens"
"""The key of what this control hides (`AgentSettings.grey_screens`), and the run under it."""

AGENT = "trained"
"""The key in files of the run of the agent itself, beside its variants, its controls and the baselines."""


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
