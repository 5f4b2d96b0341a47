"""Calls of a chat endpoint that are kept on disk, counted, priced and limited.

    calls = Calls(ChatEndpoint(url, model), folder, CallLimits(price=Price(read=2.5, written=10), max_cost=5))
    calls.completion(messages, max_tokens=256).text

A request is sent once: its reply is read from disk when the same model is asked the same again, by this process or by a
later one. Models are the same if their names are, and the digests of their weights where these are known.

    FOLDER/3f/3f09….json     the reply to the request with that SHA-256, written before the reply is used
    FOLDER/3f/3f09….asked    exists while the request is under way, and is locked by the thread that asks. Later it
                             holds what replies of no use have cost: those that a killed process lost, and those that
                             broke off, came too late, or were no completion

Neither file holds the API key.
"""

import fcntl
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO, cast

from pydantic import Field, PositiveFloat, model_validator

from vlm_agent.agents.llm.client import CallError, ChatEndpoint, EndpointError, RefusedError, api_key, retry_advice
from vlm_agent.agents.llm.completion import Completion, Tokens
from vlm_agent.agents.llm.cost import Expense, Price, amount, estimated_tokens, text_tokens
from vlm_agent.errors import UserError
from vlm_agent.files import WITHOUT_LOCKS, read_checked, write_checked
from vlm_agent.settings import Section

MARKER = ".asked"

FIRST_FAILURES, MOST_FAILURES, MOST_REFUSALS = 5, 50, 1_000
"""Calls that may fail one after the other before the endpoint counts as lost: as long as it has answered none, and
later, without the refused ones and with them. A server that refuses prompts beyond its context refuses the end of a
long episode, and answers the next one."""

SAME_REFUSALS = 2
"""Calls that an endpoint which has answered none may refuse with the same words, before it counts as one that refuses
every call."""

_NUMBERS = re.compile(r"[0-9a-fA-F-]*[0-9][0-9a-fA-F-]*")
"""Numbers and ids, by which the words of two refusals may differ."""

_SHORTEST_KEY = 12  # A shorter one, such as EMPTY for a local server, is no secret, and may be part of a reply.


class CostLimitError(UserError):
    """The next call could exceed `CallLimits.max_cost`. Every earlier reply is on disk."""


class CallLimits(Section):
    """`price`: money per million tokens read and written. `max_cost`: money that all calls of the model in a folder may
    cost, including those of earlier commands. `requests_per_minute`: over all threads of a process, repeated requests
    included.
    """

    price: Price | None = None
    max_cost: PositiveFloat | None = None
    requests_per_minute: PositiveFloat | None = Field(default=None, le=100_000)

    @model_validator(mode="after")
    def _has_price(self) -> "CallLimits":
        if self.max_cost is not None and self.price is None:
            raise ValueError("max_cost needs a price: the money per million tokens read and written")
        return self


@dataclass
class Pace:
    """Lets one request pass every 60 / `requests_per_minute` seconds, in the order in which threads call it."""

    requests_per_minute: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _next: float = field(default=float("-inf"), init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __call__(self) -> None:
        with self._lock:
            now = self.clock()
            turn = max(now, self._next)
            self._next = turn + 60.0 / self.requests_per_minute
        if turn > now:
            self.sleep(turn - now)


@dataclass
class _Totals:
    """`spent`: requests of this process that were answered or may be billed. `before`: those of earlier processes, lost
    replies included. `reserved`: calls under way, at most. `reused`: replies from disk. `repeated`: requests beyond the
    first of a call. `unusable`: requests that may be billed, and whose replies were refused or did not arrive.
    `estimated`: requests whose tokens the server did not report. `lost`: replies that a killed process received or
    waited for, and did not write, and those that were of no use to earlier commands. `failed`: calls; `failures` of
    them since the last reply, and `unrefused` without a refusal. `has_answered`: the model, now or in an earlier
    command. `refusal`: the words of the last refused call, and `refusals` of them one after the other."""

    before: Expense = field(default=Expense())
    spent: Expense = field(default=Expense())
    reserved: Expense = field(default=Expense())
    reused: int = 0
    repeated: int = 0
    unusable: int = 0
    estimated: int = 0
    lost: int = 0
    failed: int = 0
    failures: int = 0
    unrefused: int = 0
    has_answered: bool = False
    refusal: str = ""
    refusals: int = 0

    def count_failure(self, error: CallError) -> None:
        self.failed += 1
        self.failures += 1
        self.unrefused += not isinstance(error, RefusedError)
        refusal = _NUMBERS.sub("", str(error)) if isinstance(error, RefusedError) else ""
        self.refusals = self.refusals + 1 if refusal and refusal == self.refusal else 1
        self.refusal = refusal

    def lost_because_of(self, error: CallError) -> str | None:
        """Why no further call is sent after this one failed; None if another one may be answered."""
        if not self.has_answered and self.refusal and self.refusals >= SAME_REFUSALS:
            return f"{error}; so it did with each of the first {self.refusals} calls, so no other is sent"
        if not self.has_answered and self.failures >= FIRST_FAILURES:
            return (
                f"each of the first {self.failures} calls failed, the last one with: {error}; is this the address of a "
                "chat endpoint, and does the model answer?"
            )
        if self.unrefused >= MOST_FAILURES or self.failures >= MOST_REFUSALS:
            advice = retry_advice([str(error)], "run the same command again to continue")
            return (
                f"{self.failures:,} calls failed one after the other, the last one with: {error}; every reply so far "
                f"is on disk: {advice}"
            )
        return None


class Calls:
    """Calls of one model; thread-safe. Several processes may share a folder: a request is still sent once, but each
    counts the money of the others as it was at its own start.

    `weights`: the SHA-256 of the served model, where it is known. Replies of other weights under the same name are then
    not reused. `is_patient`: calls may fail from the first on, as for a caller that does without their replies;
    `FIRST_FAILURES` and `SAME_REFUSALS` then do not apply.
    """

    def __init__(
        self,
        chat: ChatEndpoint,
        folder: Path,
        limits: CallLimits = CallLimits(),  # noqa: B008
        weights: str | None = None,
        is_patient: bool = False,
    ) -> None:
        rate, self._stopped = limits.requests_per_minute, threading.Event()
        self.pace = chat.pace if rate is None else Pace(rate, sleep=self._wait)
        sleep = self._wait if chat.sleep is time.sleep else chat.sleep  # `stop` ends a wait before a repeated request
        self.chat = replace(chat, pace=self._before_request, sleep=sleep)
        self.folder, self.limits, self.weights = folder, limits, weights
        self._lock = threading.Lock()
        replies, lost = _paid_before(folder, chat.model, has_price=limits.price is not None)
        # Lost replies may be those of an endpoint that never answers in time.
        self._totals = _Totals(before=replies + lost, has_answered=is_patient or replies.calls > 0)

    def completion(self, messages: Sequence[Mapping[str, Any]], max_tokens: int) -> Completion:
        """The model's reply, from disk if the same was asked before.

        Raises CallError if the endpoint fails for this request, EndpointError if it cannot be used at all, and
        CostLimitError if the call could exceed the limit.
        """
        path = self.path(messages, max_tokens)
        if (reply := _stored(path)) is None:
            with _asking(path.with_suffix(MARKER)) as marker:
                if (reply := _stored(path)) is None:  # else another thread or process asked meanwhile
                    return self._ask(path, marker, messages, max_tokens)
        with self._lock:
            self._totals.reused += 1
            self._totals.has_answered = True
        return replace(reply, from_disk=True)

    def stop(self) -> None:
        """Sends no further request, not even a repeated one, so that threads end with the reply that they wait for.
        Later calls that are not on disk raise EndpointError."""
        self._stopped.set()

    def path(self, messages: Sequence[Mapping[str, Any]], max_tokens: int) -> Path:
        """The file of the reply to a request; it exists if the request was answered."""
        request = {"model": self.chat.model, "messages": list(messages), "max_tokens": max_tokens, "temperature": 0}
        if self.weights is not None:
            request["weights"] = self.weights
        digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        return self.folder / digest[:2] / f"{digest}.json"

    def stored(self, messages: Sequence[Mapping[str, Any]], max_tokens: int) -> Completion | None:
        """The reply to a request from disk, None if it was not answered. Not counted as a reply from disk."""
        return _stored(self.path(messages, max_tokens))

    def discard(self, messages: Sequence[Mapping[str, Any]], max_tokens: int) -> None:
        """Removes a reply of no use from disk, so that the request is sent again; its cost still counts."""
        path = self.path(messages, max_tokens)
        with _asking(path.with_suffix(MARKER)) as marker:
            if path.exists():
                _write_marker(marker, self.chat.model, Expense(**_read(path)["paid"]))
                path.unlink()

    def expected(self, messages: Sequence[Mapping[str, Any]], max_tokens: int, written: int) -> Expense:
        """An estimate of what the request will cost with a reply of `written` tokens: nothing if it was answered."""
        if self.path(messages, max_tokens).exists():
            return Expense()
        return Expense(1, estimated_tokens(messages), written)

    def spending(self) -> str:
        """The calls of this process and their cost, in one line."""
        with self._lock:
            totals, price = replace(self._totals), self.limits.price
        counts = {
            "replies from disk": totals.reused,
            "requests repeated": totals.repeated,
            "calls failed": totals.failed,
            "replies of no use, counted in the cost" if price is not None else "replies of no use": totals.unusable,
            "calls with estimated tokens": totals.estimated,
            "earlier replies lost or of no use": totals.lost,
        }
        notes = [f"{count:,} {what}" for what, count in counts.items() if count]
        if price is not None and totals.before.calls:
            notes.append(f"cost with earlier commands {amount((totals.before + totals.spent).money(price))}")
        line = f"New: {totals.spent.in_words(price)}"
        return f"{line} ({', '.join(notes)})" if notes else line

    def _wait(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    def _before_request(self) -> None:
        self.pace()
        if self._stopped.is_set():
            raise EndpointError("the command has been stopped; run it again to continue")
        with self._lock:  # replies of no use cost money that the call did not reserve
            self._check_cost()

    def _ask(self, path: Path, marker: TextIO, messages: Sequence[Mapping[str, Any]], max_tokens: int) -> Completion:
        expected = Expense(1, estimated_tokens(messages), max_tokens)
        marker.seek(0)
        model, earlier = self.chat.model, _marker(marker.read()).expense
        lost, paid = earlier, Expense()

        def unusable(tokens: Tokens | None) -> None:
            nonlocal lost
            wasted = Expense(1, *(tokens or (expected.read, expected.written)))
            lost += wasted
            _write_marker(marker, model, lost + expected)
            with self._lock:
                self._totals.spent += wasted
                self._totals.unusable += 1
                self._totals.estimated += tokens is None

        with self._lock:
            self._check_cost(expected)
            self._totals.reserved += expected
        try:
            _write_marker(marker, model, lost + expected)
            try:
                reply = self._request(messages, max_tokens, unusable)
            except (EndpointError, CostLimitError):
                _write_marker(marker, model, lost)
                raise
            paid = Expense(1, *(reply.tokens or (expected.read, text_tokens(reply.text))))
            _write_reply(path, model, reply, paid, lost)
            path.with_suffix(MARKER).unlink(missing_ok=True)
        finally:
            with self._lock:
                self._totals.reserved += expected.times(-1)
                self._totals.spent += paid  # at once, or another call may not see it
        with self._lock:
            self._totals.repeated += reply.calls - 1
            self._totals.estimated += reply.tokens is None
            self._totals.lost += earlier.calls
            self._totals.failures = self._totals.unrefused = 0
            self._totals.has_answered = True
        return reply

    def _check_cost(self, further: Expense = Expense()) -> None:  # noqa: B008 (frozen)
        totals, limits = self._totals, self.limits
        if limits.max_cost is None or limits.price is None:
            return
        paid = totals.before + totals.spent
        if (paid + totals.reserved + further).money(limits.price) > limits.max_cost:
            raise CostLimitError(
                f"the calls in {self.folder} have cost {amount(paid.money(limits.price))} of at most "
                f"{amount(limits.max_cost)}, and the next one could exceed the limit; every reply is on disk: "
                "run the same command again with a higher --max-cost (--agent.max_cost) to continue"
            )

    def _request(
        self, messages: Sequence[Mapping[str, Any]], max_tokens: int, unusable: Callable[[Tokens | None], None]
    ) -> Completion:
        is_running, key = self._totals.spent.calls > 0, api_key() or ""
        try:
            reply = self.chat.completion(messages, max_tokens, is_running, unusable)
            # In case the server repeats the key.
            return reply if len(key) < _SHORTEST_KEY else replace(reply, text=reply.text.replace(key, "…"))
        except CallError as error:
            with self._lock:
                self._totals.count_failure(error)
                lost = self._totals.lost_because_of(error)
            if lost is None:
                raise
            raise EndpointError(lost) from None


@dataclass(frozen=True)
class _Marker:
    """A request under way, and its replies that were lost, of no use or discarded. `read` and `written`: tokens of all
    of them, estimated where the server did not state them."""

    model: str = ""
    replies: int = 0
    read: int = 0
    written: int = 0

    @property
    def expense(self) -> Expense:
        return Expense(self.replies, self.read, self.written)


@dataclass
class _Reply:
    """What the file of a reply must hold. `requests`: how many it took; `paid`: as `Expense`."""

    model: str
    text: str
    tokens: tuple[int, int] | None
    requests: int
    seconds: float
    notes: list[str]
    paid: Expense


@contextmanager
def _asking(path: Path) -> Iterator[TextIO]:
    """Opens and locks a marker; waits while another thread or process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            # Without locks, two threads may send the same request; the output's own lock warns of that.
            if error.errno not in WITHOUT_LOCKS:
                raise
        yield file


def _marker(text: str) -> _Marker:
    """An empty or incomplete marker is one without lost replies: its process was killed before the request."""
    try:
        return _Marker(**json.loads(text))
    except (ValueError, TypeError):
        return _Marker()


def _write_marker(file: TextIO, model: str, paid: Expense) -> None:
    file.seek(0)
    file.truncate()
    if paid.calls:
        file.write(json.dumps(vars(_Marker(model, paid.calls, paid.read, paid.written))))
    file.flush()


def _write_reply(path: Path, model: str, reply: Completion, paid: Expense, lost: Expense) -> None:
    seconds = cast(float, reply.seconds)  # the endpoint has just measured them
    content = _Reply(model, reply.text, reply.tokens, reply.calls, seconds, list(reply.notes), paid + lost)
    write_checked(path, asdict(content))


def _stored(path: Path) -> Completion | None:
    if not path.exists():
        return None
    content = _read(path)
    tokens = content["tokens"]
    return Completion(
        content["text"],
        None if tokens is None else (tokens[0], tokens[1]),
        content["requests"],
        content["seconds"],
        notes=tuple(content["notes"]),
    )


def _read(path: Path) -> dict[str, Any]:
    return read_checked(path, "remove it, and its request is sent again", _Reply)


def _paid_before(folder: Path, model: str, has_price: bool) -> tuple[Expense, Expense]:
    """Cost of the replies in a folder, and of lost ones. Without a price, one reply is read, because a folder may hold
    a million: the sum then shows only whether there are any. Removes markers that have a reply."""
    replies = lost = Expense()
    for path in folder.glob("??/*.json"):
        content = _read(path)
        if content["model"] == model:
            replies += Expense(**content["paid"])
            if not has_price:
                break
    for path in folder.glob(f"??/*{MARKER}"):
        try:
            marker = _marker(path.read_text(encoding="utf-8"))
        except FileNotFoundError:  # another process has just received the reply
            continue
        if path.with_suffix(".json").exists():  # its process was killed after it had written the reply
            path.unlink(missing_ok=True)
        elif marker.model == model:
            lost += marker.expense
    return replies, lost
