"""An agent: its inputs, its answers, and the settings that build it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from vlm_agent.action_languages import LanguageSettings, default_settings
from vlm_agent.agents.chats import Chat
from vlm_agent.episodes import NO_NOTES, Action, Episode, Notes, Screen, Step, recorded_screen
from vlm_agent.errors import UserError
from vlm_agent.files.threads import stoppable_pool
from vlm_agent.sentences.notes import known_notes
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
class Diagnostics:
    """What reports say of an answer beyond its meaning.

    `unwritable`: for recorded episodes, whether the agent's tokenizer cannot write the demonstrated action, so no
    answer can match it. `repaired`: replies of a model that could not be read and were requested once more. `unread`:
    why the second one could not be read either, so that the step has no action. `reference_has_goal`: whether the
    nearest episode that the agent saw as an example has the same goal; None for an agent without such examples. `part`:
    an agent may take several actions from one reply of its model; the place of this action among them, 0 for the one
    for which the model was asked. `fenced`: the action was read from a markdown code fence. `types_later`: text that a
    later action of the same reply types. `seconds_on_disk`: the seconds of those replies that were read from disk, so
    that nothing waited for them now; part of `usage.seconds`. `replies`: the notes of each reply of a served model
    (`Completion.notes`); empty of any other agent. `beyond_context`: prompt and answer are longer than the model's
    context, in which case it predicts worse.
    """

    unwritable: bool = False
    repaired: int = 0
    unread: str | None = None
    reference_has_goal: bool | None = None
    part: int = 0
    fenced: bool = False
    types_later: str = ""
    seconds_on_disk: float = 0.0
    beyond_context: bool = False
    replies: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Answer:
    """An agent's output for one step.

    `text` is the model's output, `action` what it means: None if it is not an action, which counts as a wrong answer,
    never as a missing one. `notes`: what the agent wrote beside the action. `failed`: why the agent could not answer,
    for example because an endpoint did not respond; an evaluation requests such a step again when it resumes. `box` is
    the box of the element that a tap names, (y, x, height, width) in screen fractions, not clipped to the screen; None
    if the text names none. Scorers that compare boxes use it.
    """

    text: str
    action: Action | None
    notes: Mapping[str, str] = NO_NOTES
    failed: str | None = None
    box: tuple[float, float, float, float] | None = None
    usage: Usage = field(default=Usage(), compare=False)
    diagnostics: Diagnostics = field(default=Diagnostics(), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", Notes(self.notes))


NOT_PERFORMED = "the phone did not perform this action"
"""What prompts say of an earlier action that failed."""


@dataclass(frozen=True)
class Turn:
    """One earlier step: the screen, the agent's answer and the executed action.

    `answer` is None in a demonstration, where `action` is the demonstrated one. `notes`: those of the answer, or of the
    demonstration, without those of the screen. `in_doubt`: the connection broke, so that the action may or may not have
    been executed. `failed`: the phone refused the action, so that it was not executed.

    `changed`: whether the action changed the phone's screen, from what the phone showed and not what a control shows
    of it; None if unknown, as in a demonstration, where the next screen is not the effect of an own action.
    """

    screen: Screen
    answer: Answer | None
    action: Action
    notes: Mapping[str, str] = NO_NOTES
    in_doubt: bool = False
    changed: bool | None = None
    failed: bool = False


class Asked(NamedTuple):
    """The arguments of `Agent.act`."""

    goal: str
    history: Sequence[Turn]
    screen: Screen


class ActsTogether(Protocol):
    """One agent on several phones at once."""

    def act(self, asked: Sequence[Asked]) -> list[Answer]:
        """The answers of `Agent.act`. The episode of its screens identifies a phone; phones that a call leaves out are
        forgotten."""


Preparation = Callable[[Episode], Any]
Judge = Callable[[Action, Step], bool]
"""Whether an action is right at a recorded step."""


class Agent(ABC):
    """Decides the next action from the goal, the earlier steps and the current screen.

    `act` is enough; the other methods have defaults. It must be stateless: its arguments are its only input. One object
    serves all episodes and controls, with steps in any order, and must be thread-safe (`evaluate --online --workers`).
    `screen.episode` and `screen.step` identify the step, on recorded episodes and on phones.
    """

    @abstractmethod
    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer: ...

    def together(self) -> ActsTogether | None:
        """The agent on several phones at once, if that is faster than `act` on each. None by default."""
        return None

    def answer_episodes(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        """Teacher-forced answers to every step of every episode: [episode][step].

        Each step is answered after its demonstrated history. An agent may answer in batches, faster than step by step.
        """
        return answer_step_by_step(self, episodes)

    def preparation(self) -> Preparation | None:
        """The work before the model, such as resizing screens, that can be done in other processes: a picklable
        function without a model, from an episode to an input of `answer_prepared`. None without such work."""
        return None

    def answer_prepared(self, prepared: Sequence[Any]) -> list[list[Answer]]:
        """`answer_episodes` for the episodes that `prepared` were computed from."""
        raise NotImplementedError

    def without_sight(self) -> "Agent | None":
        """The agent, reading no screen, for controls that hide screens from an agent that reads them as text. None if
        grey pixels hide from it what the control is to hide."""
        return None

    def judged_by(self, judge: Judge) -> "Agent":
        """The agent, which may ask whether its action is right (gold feedback): an evaluation on recorded episodes
        provides the judge."""
        return self

    def estimate(self, sample: Callable[[], Sequence[Episode]], steps: int) -> str | None:
        """A line on the cost of `steps` steps like those of the sample, which commands print first; None for an agent
        whose calls cost nothing."""
        return None

    def spending(self) -> str:
        """A line on the cost so far, of an agent with an estimate."""
        raise NotImplementedError

    def stop(self) -> None:  # noqa: B027 (most agents have nothing to stop)
        """At Ctrl-C: calls of other threads send no further request, and later ones raise an error of the agent."""


GREY_PIXELS = "pixels are grey; elements of the phone or data set, activity and recorded texts stay"
"""What the control `grey_screens` is for an agent whose `without_sight` is None."""


class AgentSettings(Section):
    """Settings of one kind of agent, as an agent file holds them; `agent` is its name in `AGENTS`.

    A kind of agent defines its settings as fields and `load`. The other methods have defaults.
    """

    SENTENCES: ClassVar[tuple[str, ...]] = ()
    """Kinds of sentences (`data.sentences` of a recipe). A run that was trained on one of them is run by this agent."""

    agent: str

    @property
    def display_name(self) -> str:
        """The name of the agent in reports and traces, such as its run folder or address."""
        return self.agent

    @property
    def run_label(self) -> str:
        """What tables and reports call the agent's own run, beside its controls and baselines: the name of a model or
        run folder, by default that of the kind of agent."""
        return self.agent

    @property
    def language(self) -> LanguageSettings:
        """The action language of the agent's answers."""
        return default_settings()

    @property
    def text_inputs(self) -> tuple[str, ...]:
        """The names of the notes that the agent reads of a recorded episode; by default none. Those of `screen` are of
        the current step and earlier ones, the others of earlier steps only."""
        return ()

    @property
    def text_notes(self) -> dict[str, str]:
        """Lines of the report on texts that the agent reads and that are not recorded: what they are → their origin;
        and on its weights."""
        return {}

    @property
    def reads_elements(self) -> bool:
        """Whether the agent reads the elements of screens, or needs them to read its own answers."""
        return self.language.build().needs_elements

    @property
    def grey_screens(self) -> str:
        """What the control `grey_screens` hides of every screen and what it leaves, for the report.

        Part of the identity of evaluations with this control, unless it is `GREY_PIXELS`.
        """
        return GREY_PIXELS

    @property
    def learned_by(self) -> Path | None:
        """The run folder whose training episodes the agent's model learned from; None for an agent without a run."""
        return None

    def identity(self) -> dict[str, Any]:
        """All settings that determine the answers, as JSON values. An evaluation resumes only if they are equal.

        The code of the agent is not part of the identity: after a change of the code, evaluate into another folder.
        """
        return self.model_dump(mode="json")

    def in_output(self, output: Path) -> Self:
        """These settings for a command that writes to the folder `output`, where the agent may keep its own files."""
        return self

    def chats(self, episodes: Iterable[Episode]) -> Iterator[Chat]:
        """The agent's prompts for recorded episodes, with the replies that a text model has to learn. Raises UserError
        for an agent whose prompts have no known replies."""
        raise UserError(f"agent {self.agent} prompts no model whose replies are known, so it has no chats")

    def asks_to_be_shown(self, goal: str) -> str | None:
        """A message for the user after a run that did not reach the goal, by an agent that learns from demonstrations;
        None for any other agent."""
        return None

    def device(self) -> str | None:
        """A line that describes the device of the agent's model; None for an agent without a local model."""
        return None

    def load(self) -> Agent:
        raise NotImplementedError


def answer_step_by_step(
    agent: Agent, episodes: Sequence[Episode], workers: int = 1, stop: Callable[[], object] = bool
) -> list[list[Answer]]:
    """Calls `act` for every step of every episode in `workers` threads: [episode][step]. `stop`: see
    `stoppable_pool`."""
    with stoppable_pool(workers, stop) as pool:
        pending = [
            [
                pool.submit(
                    _answer, agent, episode.goal, demonstrated(episode, number), recorded_screen(episode, number)
                )
                for number in range(len(episode))
            ]
            for episode in episodes
        ]
        return [[answer.result() for answer in answers] for answers in pending]


def _answer(agent: Agent, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
    answer = agent.act(goal, history, screen)
    if not isinstance(answer, Answer):
        raise TypeError(f"{type(agent).__name__}.act must return an Answer, not {type(answer).__name__}")
    return answer


def demonstrated(episode: Episode, steps: int) -> list[Turn]:
    """The history of the first `steps` demonstrated steps: turns without answers, with the notes of actions."""
    turns = []
    for number, step in enumerate(episode.steps[:steps]):
        notes = {name: step.notes[name] for name in ("think", "action") if name in step.notes}
        turns.append(Turn(recorded_screen(episode, number), None, step.action, notes))
    return turns


def episode_of(goal: str, history: Sequence[Turn], screen: Screen, with_notes: bool = False) -> Episode:
    """The history and the current screen as an episode, whose last action is a placeholder.

    `with_notes`: with the notes of every screen, recorded ones or those that any phone gives. The inverse of
    `recorded_screen` and `demonstrated` for what an agent reads.
    """
    turns = [*history, Turn(screen, None, Action.impossible())]
    known = known_notes([turn.screen for turn in turns]) if with_notes else [turn.screen.notes for turn in turns]
    steps = []
    for turn, now, after in zip(turns, known, [*known[1:], NO_NOTES], strict=True):
        notes = {**now, **turn.notes, "screen": now.get("screen", ""), "result": after.get("result", "")}
        shown = turn.screen
        steps.append(Step(shown.pixels, turn.action, tuple(shown.elements or ()), shown.activity, notes))
    return Episode(screen.episode, "", goal, tuple(steps), first_step=screen.step - len(history))
