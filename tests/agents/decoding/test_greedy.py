"""The tokens of a sentence that decoding answers."""

from vlm_agent.agents.decoding.greedy import action_spans
from vlm_agent.sentences import Sentence

END = 9


def test_a_supervised_thought_is_not_part_of_the_action_after_it():
    sentence = Sentence()
    sentence.read([1, 2])
    sentence.learn([3, END], role="thought")
    sentence.learn([4, 5, END], kind=0)
    sentence.read([1])
    sentence.learn([6, END], kind=1)
    assert action_spans(sentence, END) == [(4, 7), (8, 10)]
