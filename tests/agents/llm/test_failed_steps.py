"""A step whose call failed has no cost."""

from pathlib import Path

from vlm_agent.agents.agent import Answer, Usage
from vlm_agent.agents.llm.calls import Calls
from vlm_agent.agents.llm.client import CallError, ChatEndpoint
from vlm_agent.agents.llm.completion import Completion
from vlm_agent.agents.llm.prompted import PromptedAgent, Replies


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
