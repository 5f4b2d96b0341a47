"""A trajectory is one sentence; each action has the same loss as if the sentence ended after it."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import tiny
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from vlm_agent.episodes import Action
from vlm_agent.errors import UserError
from vlm_agent.models.llama_vit.family import collate
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN, Sentence
from vlm_agent.sentences.image_sizes import prepare_screen
from vlm_agent.sentences.templates import PLAIN

WORDS = tiny.tokenizer()
SENTENCES = tiny.sentences(WORDS)
EPISODE = tiny.episode()
TOKENS = tiny.GRID[0] * tiny.GRID[1]


@pytest.fixture(scope="module")
def model():
    return tiny.model(len(WORDS))


def action_ids(action: Action) -> list[int]:
    return [*SENTENCES.ids(tiny.LANGUAGE.encode(action)), SENTENCES.end_mark]


def action_positions(sentence: Sentence) -> list[list[int]]:
    """The positions of each action's tokens."""
    supervised = [at for at, label in enumerate(sentence.labels) if label != IGNORED]
    ends = [at for at in supervised if sentence.labels[at] == WORDS.eos_token_id]
    return [[at for at in supervised if before < at <= end] for before, end in zip([-1, *ends], ends, strict=False)]


def token_losses(model, sentence: Sentence) -> torch.Tensor:
    """The loss of each token (tokens,), 0 without a label."""
    with torch.inference_mode():
        logits = model(torch.tensor([sentence.input_ids]), torch.from_numpy(np.stack(sentence.screens))).logits[0]
    labels = torch.tensor(sentence.labels)
    losses = torch.nn.functional.cross_entropy(logits[:-1], labels[1:], ignore_index=IGNORED, reduction="none")
    return torch.cat([torch.zeros(1), losses])


def test_the_order_is_goal_and_then_screen_cue_action_for_each_step():
    sentence = SENTENCES.build(EPISODE)
    expected = SENTENCES.encode(SENTENCES.opening(EPISODE)).input_ids
    for step in EPISODE.steps:
        expected = expected + [SCREEN_TOKEN] * TOKENS + SENTENCES.ids(PLAIN.cue) + action_ids(step.action)
    assert sentence.input_ids == expected
    assert sentence.input_ids[0] == WORDS.bos_token_id
    assert sentence.input_ids.count(SCREEN_TOKEN) == TOKENS * len(EPISODE)
    assert len(sentence.screens) == len(EPISODE)


def test_exactly_the_actions_and_their_end_marks_are_supervised():
    sentence = SENTENCES.build(EPISODE)
    labels = [label for label in sentence.labels if label != IGNORED]
    assert labels == [id_ for step in EPISODE.steps for id_ in action_ids(step.action)]
    assert all(label in (IGNORED, id_) for label, id_ in zip(sentence.labels, sentence.input_ids, strict=True))
    assert sentence.supervised == len(labels)
    assert labels.count(WORDS.eos_token_id) == len(EPISODE)


def test_the_text_of_an_action_in_the_goal_has_no_label():
    action = tiny.LANGUAGE.encode(EPISODE.steps[0].action)
    sentence = SENTENCES.build(replace(EPISODE, goal=f"first {action} then {action}"))
    before_the_first_screen = sentence.input_ids.index(SCREEN_TOKEN)
    assert set(sentence.labels[:before_the_first_screen]) == {IGNORED}
    assert sentence.supervised == SENTENCES.build(EPISODE).supervised


def test_actions_before_the_first_supervised_step_are_read_without_a_label():
    whole, window = SENTENCES.build(EPISODE), SENTENCES.build(EPISODE, first_supervised_step=2)
    assert window.input_ids == whole.input_ids and len(window.screens) == len(EPISODE)
    learned = [label for label in window.labels if label != IGNORED]
    assert learned == [id_ for step in EPISODE.steps[2:] for id_ in action_ids(step.action)]


def test_an_end_mark_in_typed_text_does_not_end_the_action():
    steps = tuple(replace(step, action=Action.type_text("</s> and <s>")) for step in EPISODE.steps[:2])
    sentence = SENTENCES.build(replace(EPISODE, goal="write </s>", steps=steps))
    assert sentence.input_ids.count(WORDS.eos_token_id) == 2
    assert len(action_positions(sentence)) == 2


def test_the_loss_of_each_action_is_unchanged_when_the_sentence_ends_after_it(model):
    whole = SENTENCES.build(EPISODE)
    losses = token_losses(model, whole)
    for number, positions in enumerate(action_positions(whole)):
        shorter = SENTENCES.build(EPISODE, last=number + 1)
        assert shorter.input_ids == whole.input_ids[: positions[-1] + 1]
        assert token_losses(model, shorter)[positions] == pytest.approx(losses[positions], abs=1e-5)
        assert losses[positions].min() > 0


def test_the_loss_of_the_model_is_the_mean_over_action_tokens(model):
    whole = SENTENCES.build(EPISODE)
    row = collate([whole])
    with torch.inference_mode():
        loss = model(row["input_ids"], row["screens"], row["labels"]).loss
    assert loss.item() == pytest.approx(token_losses(model, whole).sum().item() / whole.supervised, abs=1e-5)


def test_a_later_screen_does_not_change_earlier_logits(model):
    whole = SENTENCES.build(EPISODE)
    other = copy.deepcopy(whole)
    other.screens[2] = 255 - other.screens[2]
    with torch.inference_mode():
        before, after = (
            model(torch.tensor([s.input_ids]), torch.from_numpy(np.stack(s.screens))).logits[0] for s in (whole, other)
        )
    third_screen = [at for at, id_ in enumerate(whole.input_ids) if id_ == SCREEN_TOKEN][2 * TOKENS]
    assert torch.equal(before[:third_screen], after[:third_screen])
    assert not torch.allclose(before[third_screen:], after[third_screen:])


def test_each_action_depends_on_its_own_screen(model):
    """Grey screens change the loss of every action."""
    usual = token_losses(model, SENTENCES.build(EPISODE))
    grey = token_losses(model, tiny.sentences(WORDS, grey=True).build(EPISODE))
    assert all((usual[positions] != grey[positions]).any() for positions in action_positions(SENTENCES.build(EPISODE)))


def test_steps_before_the_first_are_not_in_the_sentence():
    alone = SENTENCES.build(EPISODE, 2, 3)
    assert len(alone.screens) == 1
    assert np.array_equal(alone.screens[0], SENTENCES.screens.prepare(EPISODE.steps[2].screenshot))
    assert [label for label in alone.labels if label != IGNORED] == tiny.action_ids(SENTENCES, EPISODE.steps[2].action)


def test_grey_sentences_differ_only_in_their_screens():
    seeing, blind = SENTENCES.build(EPISODE), tiny.sentences(WORDS, grey=True).build(EPISODE)
    assert blind.input_ids == seeing.input_ids
    assert blind.labels == seeing.labels
    assert all(screen.shape == (3, *tiny.SCREEN) and (screen == 128).all() for screen in blind.screens)


def test_an_action_that_the_tokenizer_cannot_write_is_an_error():
    marks = {"unk_token": "<unk>", "eos_token": "</s>"}
    letters = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1}, unk_token=marks["unk_token"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, **marks)
    with pytest.raises(UserError, match="tap at 2 7"):
        tiny.action_ids(tiny.sentences(tokenizer), Action.tap(0.25, 0.75))


def test_without_a_start_mark_the_sentence_starts_with_the_goal():
    words = tiny.tokenizer()
    words.bos_token = None
    sentences = tiny.sentences(words)
    assert tiny.goal_ids(sentences, "go") == tiny.goal_ids(SENTENCES, "go")[1:]


def test_trajectory_sentences_can_be_pickled():
    SENTENCES.build(EPISODE)
    assert pickle.loads(pickle.dumps(SENTENCES)).build(EPISODE).input_ids == SENTENCES.build(EPISODE).input_ids  # noqa: S301


def test_a_screen_is_resampled_only_if_its_size_differs():
    screenshot = EPISODE.steps[0].screenshot
    assert np.array_equal(prepare_screen(screenshot, tiny.SCREEN), screenshot.transpose(2, 0, 1))
    corner = np.zeros((600, 270, 3), np.uint8)
    corner[:300, 135:] = 255
    small = prepare_screen(corner, (64, 32))
    assert small.shape == (3, 64, 32)
    assert (small[:, :31, 17:] == 255).all()
    assert (small[:, 33:] == 0).all()
    assert (small[:, :, :15] == 0).all()
