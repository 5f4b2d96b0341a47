"""The benchmark of tokens counts what the limits remove."""

from transformers import AutoTokenizer

from studies.auto_ui.tokens import made_episodes, measure
from vlm_agent.action_languages import language_settings
from vlm_agent.sentences.steps import StepSentences


def test_right_truncation_would_cut_the_goals_of_sources_whose_actions_are_dropped_here(shared):
    tokenizer = AutoTokenizer.from_pretrained(shared / "weights/t5-tokenizer")
    plain = language_settings({"name": "auto_ui", "normalised": False}).build()
    figures = measure(StepSentences(tokenizer, plain), list(made_episodes())).figures()
    assert figures["steps"] == 103
    assert figures["too_long"] == figures["goal_cut_by_right_truncation"] == 17
    assert figures["actions_dropped"] == 17
    assert figures["unlearned"] == 3
