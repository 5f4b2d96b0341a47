"""Which tokens of a sentence decoding answers."""

from vlm_agent.agents.decoding.greedy import action_spans
from vlm_agent.sentences import Sentence

END = 9


def test_an_action_begins_behind_the_thought_that_is_learned_before_it():
    sentence = Sentence()
    sentence.read([1, 2])
    sentence.learn([3, END], role="thought")
    sentence.learn([4, 5, END], kind=0)
    sentence.read([1])
    sentence.learn([6, END], kind=1)
    assert action_spans(sentence, END) == [(4, 7), (8, 10)]
