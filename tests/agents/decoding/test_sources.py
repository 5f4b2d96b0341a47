"""Sources that are decoded together have the answers that each has alone."""

import pytest
import torch
from helpers import tiny
from helpers.models import screen_t5

from vlm_agent.agents.decoding.greedy import Limits, answer_sources, decode_sentence, most_likely
from vlm_agent.episodes import Action
from vlm_agent.models.decoding import SourceDecoder
from vlm_agent.sentences import Sentence

WORDS = tiny.tokenizer()
LIMITS = Limits(WORDS.eos_token_id, 12)


def decoder(seed: int = 0) -> SourceDecoder:
    torch.manual_seed(seed)
    marks = {"pad_token_id": WORDS.pad_token_id, "eos_token_id": WORDS.eos_token_id}
    content = {key: value for key, value in screen_t5.CONFIG.items() if key != "model_type"}
    config = screen_t5.ScreenT5Config(**content, vocab_size=len(WORDS), **marks)
    model = screen_t5.ScreenT5(config).eval()
    with torch.no_grad():
        for weights in model.parameters():  # transformers' own weights write one token for ever
            weights.normal_(std=0.6)
    return screen_t5.ScreenT5Decoder(model)


def sources(count: int = 7) -> list[Sentence]:
    """Sources of different lengths: the histories before the last step of episodes of 1 … `count` steps."""
    sentences = tiny.sentences(WORDS)
    found = []
    for steps in range(1, count + 1):
        episode = tiny.episode(steps, tuple(Action.tap(0.1 * number, 0.5) for number in range(steps)))
        found.append(with_one_token_a_screen(sentences.prompt(episode)))
    return found


def with_one_token_a_screen(sentence: Sentence) -> Sentence:
    reduced, screens = Sentence(), iter(sentence.screens)
    for before, token in zip([0, *sentence.input_ids], sentence.input_ids, strict=False):
        if token >= 0:
            reduced.read([token])
        elif before >= 0:
            reduced.see(next(screens), 1)
    return reduced


@pytest.mark.parametrize("seed", range(4))
def test_they_are_those_of_decoding_one_by_one_at_any_batch_size(seed):
    with torch.inference_mode():
        model, batch = decoder(seed), sources()
        alone = [decode_sentence(model, one, most_likely, LIMITS) for one in batch]
        assert answer_sources(model, batch, most_likely, LIMITS) == alone
        assert [answer_sources(model, [one], most_likely, LIMITS)[0] for one in batch] == alone
    assert len({tuple(ids) for ids in alone}) > 1


def test_a_row_is_dropped_when_its_answer_ends_and_the_others_do_not_change():
    with torch.inference_mode():
        model, batch = decoder(), sources()
        free = answer_sources(model, batch, most_likely, LIMITS)
        for mark in {token for ids in free for token in ids}:
            cut = [ids[: ids.index(mark) + 1] if mark in ids else ids for ids in free]
            assert answer_sources(model, batch, most_likely, Limits(mark, LIMITS.max_tokens)) == cut


def test_a_choice_reads_the_logits_of_its_own_row():
    def second(tokens, best, logits):
        first, other = logits().topk(2).indices.tolist()
        assert first == best
        return other if len(tokens) % 2 else best

    with torch.inference_mode():
        model, batch = decoder(), sources()
        alone = [decode_sentence(model, one, second, LIMITS) for one in batch]
        assert answer_sources(model, batch, second, LIMITS) == alone
        assert alone != answer_sources(model, batch, most_likely, LIMITS)
