"""Options that select the agent of a command (see `vlm_agent/agents/loading.py`)."""

import argparse
import textwrap
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import keys_in
from vlm_agent.errors import UserError
from vlm_agent.recipe.model import PLACES

if TYPE_CHECKING:
    from vlm_agent.agents import AgentSettings
    from vlm_agent.recipe.run import Recipe
    from vlm_agent.screens.understand import Readers


AGENT_KEYS = "agent."
"""The prefix of the settings of an agent among the options."""


def add_agent_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--agent",
        metavar="WHICH",
        help="a run folder, one of its checkpoints, an agent file (eval/agents/*.yaml) or the name of an embedded base",
    )
    parser.add_argument("--checkpoint", metavar="RUN", help="short form: the agent of a run folder or checkpoint")
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="short form: a served model, http://localhost:8000/v1 …, with --agent.model NAME, its name there; with "
        "--agent FILE its server",
    )


def add_places(parser: argparse.ArgumentParser) -> None:
    """Options that say where the bases of a run lie on this machine (`models/weights/origin.py`)."""
    for place in PLACES:
        is_first = place == PLACES[0]
        parser.add_argument(
            f"--model.{place}",
            metavar="COMMIT" if place.endswith("revision") else "PATH",
            help="run: where its base lies now, if it moved; its files must be those of the training. Other bases: "
            "--model.KEY.checkpoint, --model.KEY.revision and --model.base, as RUN/recipe.yaml names them"
            if is_first
            else argparse.SUPPRESS,
        )


def places(options: argparse.Namespace, run: str | Path | None) -> AbstractContextManager[None]:
    """In the block, the bases of `run` lie where the options of `add_places` say.

    Raises UserError for an option that neither the recipe of the run nor that of a run below it has, and for one
    without a run.
    """
    chosen = {place: value for place in PLACES if (value := getattr(options, f"model.{place}")) is not None}
    return _elsewhere(run, chosen) if chosen else nullcontext()


def _elsewhere(run: str | Path | None, chosen: dict[str, str]) -> AbstractContextManager[None]:
    from vlm_agent.models.weights.origin import bases_elsewhere, places_of_run

    known = set() if run is None else places_of_run(Path(run), chosen)
    for place in chosen:
        if place not in known:
            also = f"; it has {', '.join(f'--model.{key}' for key in sorted(known))}" if known else ""
            raise UserError(f"--model.{place} has no effect: {run or 'the agent'} reads no such checkpoint{also}")
    return bases_elsewhere(chosen)


def run_of_agent(settings: "AgentSettings") -> str | None:
    """The run that the agent loads, if it does."""
    return getattr(settings, "run", None) or getattr(settings, "as_trained", None)


def add_elements_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--elements",
        choices=("phone", "read"),
        default="phone",
        help="origin of the elements of screens: the phone or data set (default), or read from the pixels",
    )


def chosen_readers(options: argparse.Namespace, settings: "AgentSettings") -> "Readers | None":
    """The readers of `--elements read`: those of the agent, or the default ones. None for elements of the phone."""
    if options.elements == "phone":
        return None
    from vlm_agent.agents.loading import readers_of_agent

    return readers_of_agent(settings)


def check_agent_options(options: argparse.Namespace) -> None:
    """Exits unless the options select exactly one agent."""
    from vlm_agent.agents.loading import is_agent_file

    of_file = options.agent is not None and is_agent_file(options.agent)
    agents = [options.agent, options.checkpoint, None if of_file else options.endpoint]
    if agents.count(None) != 2:
        options.parser.error("select one agent: --agent, or --checkpoint, or --endpoint with --agent.model")
    if agents[2] is not None and f"{AGENT_KEYS}model" not in keys_in(options):
        options.parser.error("--endpoint needs --agent.model NAME, the name of the model there")


def agent_keys() -> str:
    """Every kind of agent with the keys of its settings, for the end of a help."""
    from vlm_agent.agents import AGENTS
    from vlm_agent.recipe.yaml_file import keys_of

    lines = ["", "settings of agents, as --agent.KEY VALUE:"]
    for name, settings in AGENTS.items():
        keys = ", ".join(keys_of(settings))
        lines.append(textwrap.fill(keys, 110, initial_indent=f"  {name:17}", subsequent_indent=" " * 19))
    return "\n".join([*lines, ""])


def chosen_agent(options: argparse.Namespace, recipe: "Recipe | None" = None) -> "AgentSettings":
    """The settings of the agent, with those of `--agent.KEY`. `recipe`: that of a run that does not exist yet."""
    from vlm_agent.agents.loading import AgentError, agent_settings
    from vlm_agent.recipe.yaml_file import override_values

    texts = {key.removeprefix(AGENT_KEYS): text for key, text in keys_in(options).items()}
    overrides = override_values(texts, AgentError, AGENT_KEYS)
    return agent_settings(options.agent, options.checkpoint, options.endpoint, overrides, recipe)
