"""A step whose call failed has no cost, and the steps after it fail for the same cause."""

from pathlib import Path

from vlm_agent.agents.agent import Answer, Usage
from vlm_agent.agents.dynamic_planning.past import answer_recorded
from vlm_agent.agents.llm.calls import Calls
from vlm_agent.agents.llm.client import CallError, ChatEndpoint, retry_advice
from vlm_agent.agents.llm.completion import Completion
from vlm_agent.agents.llm.prompted import PromptedAgent, Replies
from vlm_agent.episodes import Action, Episode, Step


class Silent(PromptedAgent):
    def answer(self, goal, history, screen, replies):
        raise AssertionError("the calls of the step are the test's")


def test_the_cost_of_a_step_is_unknown_if_its_second_call_failed(tmp_path: Path):
    def one_reply(replies: Replies) -> Answer:
        replies.counted.append(Completion("a plan", (100, 10), 1, 0.5))
        return Answer("", None)

    def then_a_failure(replies: Replies) -> Answer:
        one_reply(replies)
        raise CallError("status 500")

    agent = Silent(Calls(ChatEndpoint("http://localhost:1/v1", "vlm"), tmp_path))
    assert agent.answer_with_calls(one_reply).usage == Usage(100, 10, 1, 0.5)
    failed = agent.answer_with_calls(then_a_failure)
    assert (failed.failed, failed.usage) == ("status 500", Usage())


def test_the_steps_after_a_refused_one_are_not_said_to_be_answered_by_another_run():
    refusal = "http://a/v1 refused the request with status 413: too large"
    steps = (Step(None, Action.press("home")),) * 3
    answers = answer_recorded(lambda *_: Answer("", None, failed=refusal), [Episode("e", "s", "goal", steps)], "own", 1)
    failures = [str(answer.failed) for answer in answers[0]]
    assert failures == [refusal, *[f"its history is unknown, because step 0 failed: {refusal}"] * 2]
    assert retry_advice(failures, "run the same command again").startswith("the server refuses the same request again")
