"""An agent: what it sees, what it answers, and the settings that build it."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from vlm_agent.action_languages import LanguageSettings, default_settings
from vlm_agent.episodes import Action, CoatTexts, Episode, Screen
from vlm_agent.errors import UserError
from vlm_agent.settings import Section


class NoAnswerError(UserError):
    """The agent failed to answer (`Answer.failed`), so that the evaluation or run cannot be completed."""


@dataclass(frozen=True)
class Usage:
    """The cost of one answer. None where it is unknown.

    `tokens_read` and `tokens_written`: tokens of prompt and answer. `calls`: requests to a model. `seconds`: wall time.
    `from_prefill`: whether the prefill alone gave the answer, without decoding a token (`decoding/greedy.py`).
    """

    tokens_read: int | None = None
    tokens_written: int | None = None
    calls: int | None = None
    seconds: float | None = None
    from_prefill: bool | None = None

    @property
    def tokens(self) -> tuple[int, int] | None:
        """(read, written), None unless both are known."""
        if self.tokens_read is None or self.tokens_written is None:
            return None
        return self.tokens_read, self.tokens_written


@dataclass(frozen=True)
class Answer:
    """An agent's output for one step.

    `text` is the model's output, `action` what it means: None if it is not an action, which counts as a wrong answer,
    never as a missing one. `thoughts` and `plan` are further output of the agent. `failed`: why the agent could not
    answer, for example because an endpoint did not respond; an evaluation requests such a step again when it resumes.
    `unwritable`: of recorded episodes, whether the agent's tokenizer cannot write the demonstrated action, so that no
    answer equals it.
    """

    text: str
    action: Action | None
    thoughts: CoatTexts | None = None
    plan: tuple[str, ...] = ()
    failed: str | None = None
    usage: Usage = field(default=Usage(), compare=False)
    unwritable: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Turn:
    """One earlier step: the screen, the agent's answer and the executed action.

    `answer` is None in a demonstration, where `action` is the demonstrated one.
    """

    screen: Screen
    answer: Answer | None
    action: Action


class Agent(Protocol):
    """Decides the next action from the goal, the earlier steps and the current screen.

    `act` keeps no state: everything that it may know is in its arguments. One object serves every episode and every
    control, in any order of steps and from several threads at a time (`evaluate --online --workers`).
    """

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer: ...


@runtime_checkable
class BatchedAgent(Agent, Protocol):
    """An agent that answers whole episodes faster than step by step."""

    def answer_episodes(self, episodes: Sequence[Episode], variants: Sequence[str] = ()) -> list[list[list[Answer]]]:
        """What `answer_episodes` below returns."""
        ...


@runtime_checkable
class PreparingAgent(BatchedAgent, Protocol):
    """A batched agent whose work before the model, such as resizing screens, can be done in other processes."""

    def preparation(self) -> "Preparation | None":
        """Makes of an episode what `answer_prepared` takes. Pickles; holds no model. None without such work."""
        ...

    def answer_prepared(self, prepared: Sequence[Any], variants: Sequence[str] = ()) -> list[list[list[Answer]]]:
        """What `answer_episodes` returns for the episodes that `prepared` were made of."""
        ...


Preparation = Callable[[Episode], Any]


def preparation_of(agent: Agent) -> Preparation | None:
    """The preparation of a `PreparingAgent`, else None."""
    return agent.preparation() if isinstance(agent, PreparingAgent) else None


class AgentSettings(Section):
    """Settings of one kind of agent, as an agent file holds them; `agent` is its name in `AGENTS`.

    A kind of agent defines its settings as fields and `load`. The other methods have defaults.
    """

    VARIANTS: ClassVar[tuple[str, ...]] = ()
    """Names of the variants that `BatchedAgent.answer_episodes` answers together with the agent."""

    agent: str

    @property
    def place(self) -> str:
        """Where the agent is, for reports and traces."""
        return self.agent

    @property
    def language(self) -> LanguageSettings:
        """The action language of the agent's answers."""
        return default_settings()

    def described(self) -> dict[str, Any]:
        """Everything that decides the answers, as JSON. Only equal descriptions resume each other's evaluation.

        The code of an agent is not part of it: after a change of code, evaluate into another folder.
        """
        return self.model_dump(mode="json")

    def device(self) -> str | None:
        """The line of a log that names the device of the agent's model; None for an agent without a model here."""
        return None

    def load(self) -> Agent:
        raise NotImplementedError


def answer_episodes(
    agent: Agent, episodes: Sequence[Episode], variants: Sequence[str] = ()
) -> list[list[list[Answer]]]:
    """Answers to every step of every episode, each after its demonstrated history: [run][episode][step].

    Run 0 is the agent itself, run n its n-th variant. A `BatchedAgent` answers in its own way, any other agent step by
    step. Raises UserError if the agent has no such variant.
    """
    if isinstance(agent, BatchedAgent):
        return agent.answer_episodes(episodes, variants)
    if variants:
        raise UserError(f"this agent has no variant {variants[0]!r}; run it without variants")
    return [answer_step_by_step(agent, episodes)]


def answer_step_by_step(agent: Agent, episodes: Sequence[Episode], workers: int = 1) -> list[list[Answer]]:
    """Calls `act` for every step of every episode, `workers` calls at a time: [episode][step].

    Raises what `act` raises; pending calls are cancelled.
    """
    pool = ThreadPoolExecutor(workers)
    try:
        pending = [
            [
                pool.submit(_answer, agent, episode.goal, demonstrated(episode, number), step.screen)
                for number, step in enumerate(episode.steps)
            ]
            for episode in episodes
        ]
        return [[answer.result() for answer in answers] for answers in pending]
    finally:
        pool.shutdown(cancel_futures=True)


def _answer(agent: Agent, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
    answer = agent.act(goal, history, screen)
    if not isinstance(answer, Answer):
        raise TypeError(f"{type(agent).__name__}.act must return an Answer, not {type(answer).__name__}")
    return answer


def demonstrated(episode: Episode, steps: int) -> list[Turn]:
    """The first `steps` steps as turns without answers."""
    return [Turn(step.screen, None, step.action) for step in episode.steps[:steps]]
