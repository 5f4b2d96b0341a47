"""The agent of a command: `--agent`, or one of its short forms.

--agent RUN                    a run folder, or one of its checkpoints
--agent phone_vlm_tiny         an embedded base
--agent FILE.yaml              an agent file: `agent: NAME` (a name of AGENTS) and that agent's settings
--checkpoint RUN               agent: the one whose SENTENCES hold the run's data.sentences, run: RUN
--endpoint URL                 agent: endpoint, endpoint: URL; --agent.model NAME is its model
--agent FILE.yaml --endpoint URL    the agent file with another server
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlm_agent.agents import AGENTS, Agent, AgentSettings
from vlm_agent.agents.of_run import run_of
from vlm_agent.episodes import Episode
from vlm_agent.errors import UserError
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.recipe.yaml_file import find_shipped, read_mapping, set_keys, validated

if TYPE_CHECKING:
    from rich.console import Console

    from vlm_agent.screens.understand import Readers

_SUFFIXES = (".yaml", ".yml")


class AgentError(UserError):
    """The agent of a command cannot be built; the message names the option, file or key."""


def is_agent_file(agent: str) -> bool:
    return Path(agent).suffix in _SUFFIXES


def agent_settings(
    agent: str | None = None,
    checkpoint: str | None = None,
    endpoint: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    recipe: Recipe | None = None,
) -> AgentSettings:
    """The settings of the agent that is named by exactly one of `agent`, `checkpoint` and `endpoint`. With an agent
    file, `endpoint` replaces its server.

    `overrides` replace single settings, by dotted key. `recipe`: that of a run that does not exist yet.
    Raises AgentError for an unknown kind of agent and for an unknown setting.
    """
    if agent is not None and is_agent_file(agent):
        server = {} if endpoint is None else {"endpoint": endpoint}
        where, content = agent, read_mapping(find_shipped(Path(agent)), AgentError) | server
    elif endpoint is not None:
        where, content = "--endpoint", {"agent": "endpoint", "endpoint": endpoint}
    else:
        if agent is not None and agent in AGENTS and not Path(agent).exists():
            raise AgentError(
                f"--agent {agent}: this is a kind of agent, not an agent; write a YAML file with `agent: {agent}` and "
                "its settings (examples are in eval/agents/), and use --agent FILE.yaml"
            )
        run = checkpoint if agent is None else agent
        where, content = "--agent", {"agent": _agent_of_run(str(run), recipe), "run": run}
    name = content.get("agent")
    if not isinstance(name, str) or name not in AGENTS:
        raise AgentError(f"{where}: agent {name!r} is unknown; choose one of {', '.join(sorted(AGENTS))}")
    set_keys(AGENTS[name], content, overrides or {}, AgentError)
    return validated(AGENTS[name], content, where, AgentError)


def _agent_of_run(run: str, recipe: Recipe | None) -> str:
    """The kind of agent that runs what `run` has trained. Without a model there, the one for a recipe's defaults, whose
    `identity` and `load` report what is missing."""
    try:
        kind = (read_recipe(run_of(run).recipe) if recipe is None else recipe).data.sentences
    except FileNotFoundError:
        kind = DataRecipe.model_fields["sentences"].default
    for name, settings in AGENTS.items():
        if kind in settings.SENTENCES:
            return name
    raise AgentError(f"{run} was trained on data.sentences: {kind}, and no kind of agent runs such a model")


def load_agent(settings: AgentSettings, console: "Console", readers: "Readers | None" = None) -> Agent:
    """Loads the agent, after printing the device of its model. `readers` read the elements of screens from pixels; None
    leaves those of the phone or the data set."""
    device = settings.device()
    if device is not None:
        console.print(device, highlight=False)
    agent = settings.load()
    if readers is None:
        return agent
    from vlm_agent.agents.read_screens import ReadingAgent, ScreenReader

    return ReadingAgent(agent, ScreenReader.of(readers))


def readers_of_agent(settings: AgentSettings) -> "Readers":
    """The readers of elements in the agent's settings, or the default ones."""
    from vlm_agent.screens.understand import Readers

    own = getattr(settings, "readers", None)
    return own if isinstance(own, Readers) else Readers()


@contextmanager
def reported_spending(
    agent: Agent, console: "Console", sample: Callable[[], Sequence[Episode]], steps: int
) -> Iterator[None]:
    """Around `steps` steps of an agent with a price, prints their estimated cost first and the actual one at the end,
    also after an error. `sample`: reads episodes with similar steps."""
    if (estimate := agent.estimate(sample, steps)) is None:
        yield
        return
    console.print(estimate, highlight=False, soft_wrap=True)
    try:
        yield
    finally:
        console.print(agent.spending(), highlight=False, soft_wrap=True)
