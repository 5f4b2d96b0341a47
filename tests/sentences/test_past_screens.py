"""`data.past_screens` in trajectories: a step's sentence shows the last screens, and has earlier steps in words."""

from dataclasses import replace

import pytest
from helpers import tiny
from helpers.data.notes import ALL, lines, with_texts
from pydantic import ValidationError

from vlm_agent.episodes import without_pixels
from vlm_agent.models.qwen_vl.model import CHAT_TURNS
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN, Sentence
from vlm_agent.sentences.windows import EarlierSteps

WORDS = tiny.tokenizer()
EPISODE = with_texts(tiny.episode(1, tiny.ACTIONS[::-1] + tiny.ACTIONS))
ACTIONS = [tiny.LANGUAGE.encode(step.action) for step in EPISODE.steps]


def sentences(screens: int, words: int | None = None, **changed):
    return replace(tiny.sentences(WORDS), past=EarlierSteps(screens, words), **changed)


def text_of(sentence: Sentence) -> str:
    """The text, with a mark for each screen."""
    ids, text = list[int](), ""
    for at, id_ in enumerate(sentence.input_ids):
        if id_ != SCREEN_TOKEN:
            ids.append(id_)
        elif sentence.input_ids[at - 1] != SCREEN_TOKEN:
            text, ids = f"{text}{WORDS.decode(ids)}<screen>", []
    return (text + WORDS.decode(ids)).removeprefix("<s>")


def learned(sentence: Sentence) -> str:
    return WORDS.decode([label for label in sentence.labels if label != IGNORED], skip_special_tokens=True)


def test_the_last_screens_stay_and_earlier_steps_are_lines_before_them():
    text = text_of(sentences(2).build_step(EPISODE, 4))
    assert text == (
        f"Goal: {EPISODE.goal}\nDone:\n{ACTIONS[0]}\n{ACTIONS[1]}\n<screen>\nAction: {ACTIONS[2]}</s>"
        f"<screen>\nAction: {ACTIONS[3]}</s><screen>\nAction: {ACTIONS[4]}</s>"
    )


@pytest.mark.parametrize("screens", [0, 1, 3, 20])
def test_only_the_action_of_the_step_is_supervised(screens):
    for number, action in enumerate(ACTIONS):
        sentence = sentences(screens).build_step(EPISODE, number)
        assert learned(sentence) == action
        assert len(sentence.screens) == min(screens, number) + 1
        text = text_of(sentence)
        assert ("Done:" in text) == (number > screens)
        assert all(text.count(f"\n{line}\n") for line in ACTIONS[: max(0, number - screens)])


@pytest.mark.parametrize("words", [0, 1, 2])
def test_history_limits_the_steps_in_words(words):
    text = text_of(sentences(1, words).build_step(EPISODE, 5))
    lines = "".join(f"{action}\n" for action in ACTIONS[4 - words : 4])
    heading = "Done:\n" if words else ""
    assert text.startswith(f"Goal: {EPISODE.goal}\n{heading}{lines}<screen>\nAction: {ACTIONS[4]}</s><screen>")


def test_with_all_screens_the_last_sentence_is_the_trajectory():
    whole, last = tiny.sentences(WORDS).build(EPISODE), sentences(99).build_step(EPISODE, len(EPISODE) - 1)
    assert last.input_ids == whole.input_ids
    assert learned(last) == ACTIONS[-1]


def test_without_any_past_a_step_is_the_first_of_its_episode():
    for number in range(len(EPISODE)):
        alone = tiny.sentences(WORDS).build(replace(EPISODE, steps=EPISODE.steps[number : number + 1]))
        sentence = sentences(0, 0).build_step(EPISODE, number)
        assert (sentence.input_ids, sentence.labels) == (alone.input_ids, alone.labels)


@pytest.mark.parametrize("changed", [{}, {"template": replace(CHAT_TURNS, end="")}, {"notes": lines(ALL)}])
@pytest.mark.parametrize("screens", [0, 2])
def test_acting_reads_what_training_reads(changed, screens):
    writer = sentences(screens, **changed)
    for number in range(len(EPISODE)):
        prompt = writer.prompt(replace(EPISODE, steps=EPISODE.steps[: number + 1])).input_ids
        trained = writer.build_step(EPISODE, number)
        assert trained.input_ids[: len(prompt)] == prompt
        assert all(label == IGNORED for label in trained.labels[: len(prompt)])


def test_only_shown_steps_need_pixels():
    bare = without_pixels(EPISODE)
    steps = (*bare.steps[:3], *EPISODE.steps[3:5], *bare.steps[5:])
    built = sentences(1).build_step(replace(EPISODE, steps=steps), 4)
    assert built.input_ids == sentences(1).build_step(EPISODE, 4).input_ids


def data(**keys) -> dict:
    return {"shards": "shards", **keys}


def test_the_default_depends_on_the_kind_of_sentences():
    trajectory, chain = DataRecipe(**data()), DataRecipe(**data(sentences="chain_of_actions"))
    assert (trajectory.past_screens, trajectory.history) == (None, None)
    assert (chain.past_screens, chain.history) == (0, 8)
    assert DataRecipe(**data(past_screens="all")) == trajectory
    assert DataRecipe(**data(past_screens=2, history="all")).history is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"past_screens": -1}, "greater than or equal to 0"),
        ({"history": 2}, "history needs past_screens"),
        ({"sentences": "chain_of_actions", "past_screens": None}, "past_screens needs a number"),
        ({"sentences": "chain_of_actions", "history": "all"}, "history needs a number"),
        ({"sentences": "elements", "past_screens": 1}, "trajectory or chain_of_actions"),
    ],
)
def test_values_that_a_kind_does_not_have_are_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        DataRecipe(**data(**keys))


@pytest.mark.parametrize(
    ("keys", "saved"),
    [
        ({}, {"past_screens": None, "history": None}),
        ({"past_screens": 0}, {"past_screens": 0, "history": None}),
        ({"past_screens": 2, "history": 1}, {"past_screens": 2, "history": 1}),
        ({"sentences": "elements"}, {}),
        ({"sentences": "chain_of_actions"}, {"past_screens": 0, "history": 8}),
    ],
)
def test_saved_recipes_have_the_keys_that_are_set_and_are_read_again(tmp_path, keys, saved):
    content = tiny.recipe(tmp_path, tmp_path / "run")
    content["data"] |= keys
    recipe = Recipe(**content)
    written = recipe.model_dump(mode="json")["data"]
    assert {key: written[key] for key in ("past_screens", "history") if key in written} == saved
    assert Recipe(**recipe.model_dump(mode="json")) == recipe
