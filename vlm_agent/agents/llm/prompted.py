"""What agents that prompt a served model share: settings of their calls, failed steps, and estimates of the cost."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import PositiveFloat, PositiveInt, model_validator

from vlm_agent.agents.agent import Agent, AgentSettings, Answer, Turn, Usage, answer_step_by_step
from vlm_agent.agents.controls import hidden
from vlm_agent.agents.llm.calls import CallLimits, Calls
from vlm_agent.agents.llm.client import CallError, ChatEndpoint
from vlm_agent.agents.llm.completion import Completion
from vlm_agent.agents.llm.cost import Expense, estimated_tokens
from vlm_agent.agents.llm.prompts import PromptFile, assistant, user
from vlm_agent.agents.llm.replies import UnreadReplyError, sendable
from vlm_agent.episodes import Episode, Screen


class ServedSettings(AgentSettings, CallLimits):
    """`endpoint`: base URL such as http://localhost:8000/v1. `model`: the name of the model on that server. The API key
    is read from the environment variable OPENAI_API_KEY.

    `concurrency`: concurrent calls. `timeout`: seconds without a byte after which a request is repeated. `attempts`:
    requests of a call before it fails. `calls`: folder of the replies, by default the folder `calls` of the command's
    output. `price`, `max_cost`, `requests_per_minute`: see `CallLimits`.
    """

    endpoint: str
    model: str
    concurrency: PositiveInt = 8
    timeout: PositiveFloat = 120.0
    attempts: PositiveInt = 6
    calls: str | None = None

    @model_validator(mode="after")
    def _usable(self) -> Self:
        self._chat()
        return self

    def in_output(self, output: Path) -> Self:
        return self if self.calls is not None else self.model_copy(update={"calls": str(output / "calls")})

    def open_calls(self, weights: str | None = None) -> Calls:
        """The calls of these settings, with the replies that are on disk. `weights`: as for `Calls`."""
        folder = Path("calls") if self.calls is None else Path(self.calls)
        limits = CallLimits(**{name: getattr(self, name) for name in CallLimits.model_fields})
        return Calls(self._chat(), folder, limits, weights)

    def _chat(self) -> ChatEndpoint:
        return ChatEndpoint(self.endpoint, self.model, self.timeout, self.attempts)


OF_THE_SERVER = frozenset(ServedSettings.model_fields) - {"agent", "model"}
"""Settings that decide where and how a server is asked, and no answer."""


class PromptedSettings(ServedSettings):
    """`max_tokens`: limit of an answer. `prompts`: a file to use in place of the agent's own `prompts.yaml`."""

    max_tokens: PositiveInt = 512
    prompts: str | None = None

    @property
    def run_label(self) -> str:
        return f"{self.model} ({self.agent})"

    @property
    def grey_screens(self) -> str:
        return "pixels are grey; elements, activity and texts of the screen are removed"


@dataclass
class Replies:
    """The calls of one step, in order: they are sent, or for an estimate only added up.

    `counted`: the replies that the step's usage consists of. `rehearsed`: what the calls would cost, None if they are
    sent.
    """

    calls: Calls
    rehearsed: list[Expense] | None = None
    counted: list[Completion] = field(default_factory=list)

    def ask(
        self,
        messages: Sequence[dict[str, Any]],
        max_tokens: int,
        typical: str,
        tokens: int,
        counts: bool = True,
        kind: str = "",
    ) -> str:
        """The reply without the reasoning before it. `typical`: a reply for an estimate, of about `tokens` tokens.
        `counts`: False for a call that another step counts. `kind`: what the agent asks for, in its own names, for
        replies that are known."""
        if self.rehearsed is None:
            completion = self.calls.completion(messages, max_tokens)
        else:
            completion = Completion(typical)
            if counts:
                self.rehearsed.append(Expense(1, estimated_tokens(messages), tokens))
        if counts:
            self.counted.append(completion)
        return completion.answer

    def usage(self) -> Usage:
        """The sum over all calls of a step that count, 0 without any; tokens and seconds are None where they are
        unknown for one of them."""
        replies = self.counted
        tokens = [reply.tokens for reply in replies if reply.tokens is not None]
        seconds = [reply.seconds for reply in replies if reply.seconds is not None]
        known = len(tokens) == len(replies)
        return Usage(
            sum(read for read, _ in tokens) if known else None,
            sum(written for _, written in tokens) if known else None,
            sum(reply.calls for reply in replies),
            sum(seconds, 0.0) if len(seconds) == len(replies) else None,
        )


@dataclass(frozen=True)
class ServedAgent(Agent):
    """An agent whose model is behind an endpoint. `workers`: concurrent calls in `answer_episodes`."""

    calls: Calls
    workers: int = field(default=8, kw_only=True)

    @abstractmethod
    def expected(self, episodes: Sequence[Episode]) -> Expense:
        """The calls for the steps of `episodes`, with replies of typical lengths, whether they are on disk or not."""

    def answer_episodes(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        return answer_step_by_step(self, episodes, self.workers, self.stop)

    def stop(self) -> None:
        """Calls under way end early."""
        self.calls.stop()

    def estimate(self, sample: Callable[[], Sequence[Episode]], steps: int) -> str:
        episodes = sample()
        if not (known := sum(map(len, episodes))):
            return "Estimate: none, because these tasks have no demonstration"
        expected = self.expected(episodes).times(steps / known).in_words(self.calls.limits.price)
        return f"Estimate for {steps:,} steps, from {known}: {expected}; replies that are on disk cost nothing"

    def spending(self) -> str:
        return self.calls.spending()


@dataclass(frozen=True)
class PromptedAgent(ServedAgent):
    """A served agent whose `answer` makes one or more calls a step.

    `rehearsed`: for an estimate, nothing is sent, and the expected cost of each call is appended. `sees`: False for the
    control `grey_screens`, under which every screen is grey, without elements, activity and texts. Answers are read
    on that screen.
    """

    rehearsed: list[Expense] | None = field(default=None, kw_only=True, compare=False)
    sees: bool = field(default=True, kw_only=True)

    @abstractmethod
    def answer(self, goal: str, history: Sequence[Turn], screen: Screen, replies: Replies) -> Answer:
        """The answer to a step, from calls by `replies`; its usage is added by `act`."""

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        """The answer has `failed` if a call failed. Raises EndpointError if the endpoint cannot be used at all, and
        CostLimitError at the limit of cost."""
        history, screen = self.visible(history, screen)
        return self.answer_with_calls(lambda replies: self.answer(goal, history, screen, replies))

    def without_sight(self) -> Self:
        return replace(self, sees=False)

    def visible(self, history: Sequence[Turn], screen: Screen) -> tuple[Sequence[Turn], Screen]:
        """What the agent sees of earlier screens and of the current one."""
        if self.sees:
            return history, screen
        return [replace(turn, screen=hidden(turn.screen)) for turn in history], hidden(screen)

    def answer_with_calls(self, answer: Callable[[Replies], Answer]) -> Answer:
        """`answer(replies)` with its usage, or the failed answer of a step whose call failed."""
        replies = Replies(self.calls, self.rehearsed)
        try:
            found = answer(replies)
            on_disk = sum(reply.seconds_on_disk for reply in replies.counted)
            notes = tuple(reply.notes for reply in replies.counted)
            cost = replace(found.diagnostics, seconds_on_disk=on_disk, replies=notes)
            return replace(found, usage=replies.usage(), diagnostics=cost)
        except CallError as error:
            return Answer("", None, failed=str(error))  # the cost of a whole step is unknown

    def answer_steps(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        """`answer_episodes` without its checks, for an estimate too."""
        return super().answer_episodes(episodes)

    def expected(self, episodes: Sequence[Episode]) -> Expense:
        expenses: list[Expense] = []
        replace(self, rehearsed=expenses, workers=1).answer_steps(episodes)
        return sum(expenses, Expense())


Read = TypeVar("Read")


@dataclass
class RepairedCalls:
    """The calls of one step. `repaired`: replies that were asked for once more.

    `prompts` has a text `repair` with $reason. `typical`: replies for estimates, by name.
    """

    replies: Replies
    prompts: PromptFile
    max_tokens: int
    typical: Mapping[str, str] = field(default_factory=dict)
    repaired: int = 0

    def read(
        self,
        messages: Sequence[dict[str, Any]],
        read: Callable[[str], Read],
        typical: str,
        tokens: int,
        counts: bool = True,
        kind: str = "",
    ) -> Read:
        """What `read` makes of the reply, or of a second one. `typical`: a reply for estimates, or its name. `kind`: as
        for `Replies.ask`.

        Raises UnreadReplyError if the second reply cannot be read either.
        """
        typical = self.typical.get(typical, typical)
        text = self.replies.ask(messages, self.max_tokens, typical, tokens, counts, kind)
        try:
            return read(text)
        except UnreadReplyError as error:
            again = asked_again(self.prompts, messages, text, error)
        self.repaired += counts
        text = self.replies.ask(again, self.max_tokens, typical, tokens, counts, kind)
        try:
            return read(text)
        except UnreadReplyError as error:
            error.text = text
            raise


def asked_again(
    prompts: PromptFile, messages: Sequence[dict[str, Any]], text: str, error: UnreadReplyError
) -> list[dict[str, Any]]:
    """The messages after a reply `text` that could not be read."""
    return [*messages, assistant(sendable(text)), user(prompts.fill("repair", reason=str(error)))]
