"""The plan and the immediate step of a recorded step (D-PoT), written by a model that knows the recorded action.

The request shows the goal, the lines of the earlier steps, this screen and its action; never a later screen. A reply
that cannot be read is asked for once more, with the reason.
"""

from collections.abc import Callable, Sequence

from vlm_agent.agents.llm.client import CallError
from vlm_agent.agents.llm.prompts import assistant
from vlm_agent.agents.llm.replies import Plan, UnreadReplyError, read_plan, sendable
from vlm_agent.annotation.prompts import Messages, PlanPrompts
from vlm_agent.episodes import Episode

PLAN = "plan"
"""The name of a plan among the texts of an annotation."""

PLAN_NOTES = (PLAN, "step")
"""The notes that are written together."""

TYPICAL = '{"plan": ["tap on Clock", "tap on Alarm", "stop, the task is complete"], "step": "tap on Clock"}'
"""A reply for estimates."""

_MOST_LINES = 20


def write_plan(
    prompts: PlanPrompts,
    episode: Episode,
    number: int,
    earlier: Sequence[str],
    action: str,
    ask: Callable[[Messages], str],
    discard: Callable[[Messages], None],
) -> dict[str, str]:
    """The notes `plan` and `step` of step `number`. `earlier`: the steps before in words. `action`: its action in
    words.

    Raises CallError if a request fails, and if neither of two replies can be read; both requests are then discarded.
    """
    messages = prompts.plan(episode.goal, earlier, episode.steps[number], action)
    reply = ask(messages)
    try:
        return _texts(read_plan(reply, with_step=True))
    except UnreadReplyError as error:
        again = [*messages, assistant(sendable(reply)), prompts.again(str(error))]
    try:
        return _texts(read_plan(ask(again), with_step=True))
    except UnreadReplyError as error:
        discard(messages)
        discard(again)
        raise CallError(f"two replies have no plan and step: {error}") from None


def _texts(plan: Plan) -> dict[str, str]:
    return {PLAN: "\n".join(plan.lines[:_MOST_LINES]), "step": plan.step}
