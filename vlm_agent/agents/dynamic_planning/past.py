"""The earlier steps of an agent that answers recorded episodes, and what a prompt says of them.

`demonstrated`: the recorded actions; every step can be asked for at once. `own`: the agent's own answers, on the
recorded screens, as in the published code of D-PoT; the steps of an episode are asked for one after the other.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from vlm_agent.agents.agent import Answer, Turn, demonstrated
from vlm_agent.agents.llm.prompts import turn_in_words, with_failure
from vlm_agent.episodes import Action, Episode, recorded_screen
from vlm_agent.files.threads import stoppable_pool
from vlm_agent.texts.actions import action_in_words

Past = Literal["own", "demonstrated"]
AnswerStep = Callable[[Episode, int, Sequence[Turn]], Answer]
"""The answer to step number n of an episode, after a history."""


def answer_recorded(
    answer: AnswerStep, episodes: Sequence[Episode], past: Past, workers: int, stop: Callable[[], object] = bool
) -> list[list[Answer]]:
    """Answers as [episode][step], of `workers` threads. `stop`: see `stoppable_pool`."""
    with stoppable_pool(workers, stop) as pool:
        if past == "own":
            by_episode = [pool.submit(_with_own_past, answer, episode) for episode in episodes]
            return [pending.result() for pending in by_episode]
        by_step = [
            [pool.submit(answer, episode, number, demonstrated(episode, number)) for number in range(len(episode))]
            for episode in episodes
        ]
        return [[pending.result() for pending in of_episode] for of_episode in by_step]


def _with_own_past(answer: AnswerStep, episode: Episode) -> list[Answer]:
    """After a step whose call failed, the others fail, because their history is unknown."""
    answers: list[Answer] = []
    history: list[Turn] = []
    for number in range(len(episode)):
        answers.append(answer(episode, number, tuple(history)))
        if answers[-1].failed is not None:
            # With the cause, by which `retry_advice` recognises a refusal.
            reason = f"its history is unknown, because step {number} failed: {answers[-1].failed}"
            answers += [Answer("", None, failed=reason)] * (len(episode) - len(answers))
            break
        # Without an action nothing was done, and the demonstrated action stays unknown to the agent.
        action = answers[-1].action or Action.wait()
        history.append(Turn(recorded_screen(episode, number), answers[-1], action, answers[-1].notes))
    return answers


def shown_turns(history: Sequence[Turn]) -> list[tuple[int, Turn]]:
    """The turns with an action, with their numbers from 1. An answer that is not an action leaves no trace."""
    return [(n, turn) for n, turn in enumerate(history, 1) if turn.answer is None or turn.answer.action is not None]


def action_lines(history: Sequence[Turn]) -> str:
    """A line for each earlier action, in words."""
    return "\n".join(f"{number}. {_action_line(turn)}" for number, turn in shown_turns(history))


def step_lines(history: Sequence[Turn]) -> str:
    """A line for each earlier step: the agent's own words for it, or else the action's."""
    return "\n".join(f"{number}. {_step_line(turn)}" for number, turn in shown_turns(history))


def _action_line(turn: Turn) -> str:
    return turn_in_words(turn) if turn.answer is None else with_failure(action_in_words(turn.action, turn.screen), turn)


def _step_line(turn: Turn) -> str:
    own = "" if turn.answer is None else turn.answer.notes.get("action", "")
    return with_failure(own, turn) if own else _action_line(turn)
