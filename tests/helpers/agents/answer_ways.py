"""The ways in which an agent answers steps: each prompt alone, all steps after one prefill, several phones at once."""

from vlm_agent.agents import Answer, Asked, answer_step_by_step, demonstrated
from vlm_agent.episodes import recorded_screen


def texts(answers: list[list[Answer]]) -> list[list[str]]:
    return [[answer.text for answer in of_episode] for of_episode in answers]


def check_all_ways_agree(agent, episodes) -> None:
    """Asserts that all ways have the same answers. The last of `episodes` is the longest."""
    alone = texts(answer_step_by_step(agent, episodes))
    assert texts(agent.answer_episodes(episodes)) == alone
    together = agent.together()
    for number in range(len(episodes[-1])):
        longer = [episode for episode in episodes if number < len(episode)]
        asked = [Asked(one.goal, demonstrated(one, number), recorded_screen(one, number)) for one in longer]
        expected = [answers[number] for answers in alone if number < len(answers)]
        assert [answer.text for answer in together.act(asked)] == expected
