"""Element sentences: questions, answers and labels of visual tokens agree with the annotations of the screen."""

import random
from dataclasses import replace

import pytest
from helpers import tiny

from vlm_agent.action_languages.names import NAME_SEPARATOR
from vlm_agent.episodes import Step, UiElement
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN
from vlm_agent.sentences.elements import ITEM, ElementSentences, label_elements

WORDS = tiny.tokenizer()
TRAJECTORY = tiny.sentences(WORDS)
TOKENS = tiny.GRID[0] * tiny.GRID[1]
STEP = tiny.episode().steps[0]
BLANK = WORDS.eos_token_id


def build(step: Step = STEP, items: int = 12, seed: int = 0):
    return ElementSentences(TRAJECTORY, items).build(step, random.Random(seed))


def labels(elements: tuple[UiElement, ...], grid=tiny.GRID, empty: float = 0.0) -> list[list[int]]:
    flat = label_elements(replace(STEP, elements=elements), grid, TRAJECTORY, empty, random.Random(0))
    return flat.reshape(grid).tolist()


def word(text: str) -> int:
    (token,) = TRAJECTORY.ids(text)
    return token


def test_the_screen_comes_first_and_is_followed_by_every_element_once():
    sentence = build()
    assert sentence.input_ids[0] == WORDS.bos_token_id
    assert sentence.input_ids[1 : 1 + TOKENS] == [SCREEN_TOKEN] * TOKENS
    text = TRAJECTORY.text(sentence.input_ids[1 + TOKENS :])
    assert text.count(ITEM) == len(STEP.elements)
    assert all(text.count(element.name) == 1 for element in STEP.elements)


def test_questions_have_no_loss_and_answers_are_supervised():
    places = {"Wi-Fi": "tap at 1 2", "Clear cart": "tap at 6 5", "ICON_HOME": "tap at 8 7"}
    seen = set()
    for seed in range(20):
        sentence = build(seed=seed, items=1)
        supervised = TRAJECTORY.text([label for label in sentence.labels if label != IGNORED])
        prompt = TRAJECTORY.text(sentence.input_ids[1 + TOKENS :]).removesuffix(supervised)
        name = next(name for name in places if name in prompt + supervised)
        question, answer = (name, places[name]) if name in prompt else (places[name], name)
        assert (prompt, supervised) == (ITEM + question + NAME_SEPARATOR, answer)
        assert sentence.labels[-1] == WORDS.eos_token_id
        seen.add((question == name, name))
    assert len(seen) == 6


def test_items_limits_the_number_of_questions_and_the_seed_chooses_them():
    assert sum(label == WORDS.eos_token_id for label in build(items=2).labels) == 2
    assert build(seed=3).input_ids == build(seed=3).input_ids
    assert len({tuple(build(seed=seed).input_ids) for seed in range(10)}) > 1


def test_elements_with_long_or_empty_names_have_no_question():
    elements = (UiElement((0, 0, 0.1, 0.1), "x" * 33), UiElement((0, 0, 0.1, 0.1), "", ""))
    assert build(replace(STEP, elements=elements)).supervised == 0


def test_coordinates_of_an_element_outside_the_screen_are_clipped_to_its_edge():
    sentence = build(replace(STEP, elements=(UiElement((1.1, -0.5, 0.2, 0.2), "Wi-Fi"),)))
    assert "tap at 9 0" in TRAJECTORY.text([id_ for id_ in sentence.input_ids if id_ != SCREEN_TOKEN])


def test_without_a_start_mark_the_sentence_begins_with_the_screen():
    words = tiny.tokenizer()
    words.bos_token = None
    sentence = ElementSentences(tiny.sentences(words)).build(STEP, random.Random(0))
    assert sentence.input_ids[0] == SCREEN_TOKEN


def test_the_cell_at_the_centre_of_a_word_is_labelled_with_its_id():
    clear, cart = word("Clear"), word("cart")
    got = labels((UiElement((0.5, 0.0, 0.25, 1.0), "Clear cart"), UiElement((0.0, 0.5, 0.25, 0.5), "", "ICON_HOME")))
    assert got == [[IGNORED, word("ICON_HOME")], [IGNORED, IGNORED], [clear, cart], [IGNORED, IGNORED]]


def test_a_word_labels_every_cell_whose_centre_it_covers():
    wide = UiElement((0.25, 0.1, 0.5, 0.65), "world")  # two rows high, over the centres of columns 0, 1 and 2 of four
    assert labels((wide,), grid=(4, 4))[1:3] == [[word("world")] * 3 + [IGNORED]] * 2
    assert labels((wide,), grid=(4, 4))[0] == [IGNORED] * 4


def test_a_word_of_several_tokens_labels_no_cell():
    assert labels((UiElement((0.0, 0.0, 0.25, 0.5), "Zqx"),)) == [[IGNORED] * 2] * 4


def test_only_cells_without_an_element_are_labelled_blank():
    wide = UiElement((0.3, 0.3, 0.15, 0.4), "world", "TEXT")  # over both cells of row 1, covering neither centre
    (row,) = [row for row in labels((wide,), empty=1.0) if BLANK not in row]
    assert sorted(row) == [IGNORED, word("world")]
    assert labels((), empty=1.0) == [[BLANK] * 2] * 4
    assert labels((), empty=0.0) == [[IGNORED] * 2] * 4
    share = sum(cell == BLANK for row in labels((), grid=(40, 20), empty=0.1) for cell in row) / 800
    assert share == pytest.approx(0.1, abs=0.04)


@pytest.mark.parametrize(
    ("box", "cell"), [((-0.5, -0.5, 0.1, 0.1), (0, 0)), ((1.4, 1.4, 0.1, 0.1), (3, 1)), ((-0.2, 0.6, 0.3, 0.6), (0, 1))]
)
def test_a_box_outside_the_screen_labels_the_nearest_edge_cell(box, cell):
    got = labels((UiElement(box, "world"),))
    assert got[cell[0]][cell[1]] == word("world")
    assert sum(value == word("world") for row in got for value in row) == 1
