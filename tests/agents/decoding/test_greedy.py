"""The tokens of a sentence that decoding answers."""

from vlm_agent.agents.decoding.greedy import answer_spans
from vlm_agent.sentences import Sentence

END = 9


def test_an_answer_has_the_supervised_thought_before_its_action():
    sentence = Sentence()
    sentence.read([1, 2])
    sentence.learn([3, END], role="thought")  # only the end mark of an action ends an answer
    sentence.learn([4, 5, END], kind=0)
    sentence.read([1])
    sentence.learn([6, END], kind=1)
    assert answer_spans(sentence, END) == [(2, 7), (8, 10)]
