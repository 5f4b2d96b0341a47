"""Compares a served model with the run that it was merged from, step by step, and names the first difference.

prompt tokens   the server's count against the sentence that training would write, with screens in its sizes
ids             of the prompt, where the server has vLLM's /tokenize; other servers only count
screens         the visual tokens of unresized screenshots: the limits of the server's image processor
answers         greedy, against this machine's

A server in half precision may choose otherwise where this machine's two most likely tokens are about equal. Such an
answer counts as a tie.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import cast

import numpy as np
import torch

from vlm_agent.agents.agent import demonstrated
from vlm_agent.agents.as_trained import image_part, trained_messages
from vlm_agent.agents.decoding.greedy import Limits, decode_sentence
from vlm_agent.agents.llm.client import ChatEndpoint, Completion
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import Episode
from vlm_agent.models.decoding import Decoder
from vlm_agent.sentences import SCREEN_TOKEN, Sentence

TIE = 0.04
"""Of the largest logit. Measured on SmolLM2-135M: bfloat16 changes a logit by 1 % of it in the median, and by more than
4 % at one position in a hundred."""


@dataclass
class ServeCheck:
    """What was compared. `difference`: the first one found, None if the served model is the run's.

    `counted`, `tokenized`: steps whose prompt tokens the server counted, and listed. `sizes`: sizes of screens whose
    visual tokens were compared. `ties`: answers that differ where this machine's choice is a tie.
    """

    steps: int = 0
    counted: int = 0
    tokenized: int = 0
    sizes: int = 0
    ties: int = 0
    difference: str | None = None


@dataclass(frozen=True)
class LocalAnswer:
    """`gaps`: for each token of the answer, how far the most likely logit is from the second, as a share of the
    largest absolute logit. `seconds`: the second most likely token at each."""

    text: str
    ids: list[int]
    gaps: list[float]
    seconds: list[int]


def serve_check(agent: VlmAgent, chat: ChatEndpoint, episodes: Iterable[Episode], steps: int) -> ServeCheck:
    """Compares the first `steps` steps of `episodes`, and stops at the first difference.

    Raises EndpointError if the server cannot be used, UserError for a model without chat turns.
    """
    check, sizes = ServeCheck(), set[tuple[int, int]]()
    every = ((episode, number) for episode in episodes for number in range(len(episode)))
    for episode, number in islice(every, steps):
        check.difference = _compare_step(agent, chat, episode, number, check, sizes)
        if check.difference is not None:
            check.difference = f"step {number} of episode {episode.id}: {check.difference}"
            break
        check.steps += 1
    check.sizes = len(sizes)
    return check


def _compare_step(
    agent: VlmAgent, chat: ChatEndpoint, episode: Episode, number: int, check: ServeCheck, sizes: set[tuple[int, int]]
) -> str | None:
    """The difference of one step; None if it has none."""
    sentences, step = agent.sentences, episode.steps[number]
    sentence = sentences.build(episode, last=number)
    sentences.add_screen(sentence, step)
    messages = trained_messages(sentences, episode.goal, demonstrated(episode, number), step.screen)
    listed, image = chat.tokenize(messages), getattr(agent.model.config, "image_token_id", None)
    if listed is not None and image in listed:  # some versions of servers drop images from the list
        check.tokenized += 1
        if (found := _compare_ids(agent, sentence, _collapsed(listed, image))) is not None:
            return found
    served = chat.completion(messages, sentences.language.max_tokens)
    if served.tokens is not None:
        check.counted += 1
        if served.tokens[0] != len(sentence):
            return _compare_counts(agent, chat, messages, sentence, served.tokens[0])
        if step.size not in sizes:
            sizes.add(step.size)
            resized = [*messages[:-1], _with_screen(messages[-1], cast("np.ndarray", step.screen.pixels))]
            read = chat.completion(resized, 1).tokens
            if read is not None and read[0] != len(sentence):
                return _other_screen(sentence, step.size, read[0] - len(sentence))
    return _compare_answers(agent, sentence, served, check)


def _compare_ids(agent: VlmAgent, sentence: Sentence, theirs: Sequence[int]) -> str | None:
    """Without the lengths of screens, because some servers list one placeholder a screen and others all tokens."""
    ours = _collapsed(sentence.input_ids, SCREEN_TOKEN)
    for place, (mine, its) in enumerate(zip([*ours, None], [*theirs, None], strict=False)):
        if mine != its:
            served_text, own_text = _shown(agent, its), _shown(agent, mine)
            return f"token {place} of the prompt is {served_text} at the server and {own_text} in training"
    return None


def _collapsed(ids: Sequence[int], screen: int | None) -> list[int]:
    """One `SCREEN_TOKEN` for every run of `screen`."""
    runs = groupby(ids, key=lambda id_: id_ == screen)
    return [id_ for is_screen, run in runs for id_ in ([SCREEN_TOKEN] if is_screen else run)]


def _shown(agent: VlmAgent, id_: int | None) -> str:
    if id_ is None:
        return "the end"
    return "a screen" if id_ == SCREEN_TOKEN else repr(agent.tokenizer.decode([id_]))


def _compare_counts(agent: VlmAgent, chat: ChatEndpoint, messages: list[dict], sentence: Sentence, served: int) -> str:
    """Tells text from screens: other screens change the number of visual tokens, and leave the text as it is."""
    apart = served - len(sentence)
    dot = np.full((1, 1, 3), 128, np.uint8)  # becomes the smallest screen
    smallest = np.ascontiguousarray(agent.sentences.screens.prepare(dot).transpose(1, 2, 0))
    small = [_with_screen(message, smallest) if message["role"] == "user" else message for message in messages]
    tokens = agent.sentences.screens.tokens(*smallest.shape[:2])
    expected = len(sentence) - sentence.input_ids.count(SCREEN_TOKEN) + tokens * len(sentence.screens)
    again = chat.completion(small, 1).tokens
    if again is not None and again[0] - expected == apart:
        return (
            f"the server reads {served} tokens, training wrote {len(sentence)}, and the difference is the same with "
            "smaller screens: its chat template or tokenizer is not that of the run"
        )
    return _other_screen(sentence, sentence.screens[-1].shape[1:], apart)


def _with_screen(message: dict, pixels: np.ndarray) -> dict:
    return message | {"content": [*message["content"][:-1], image_part(pixels)]}


def _other_screen(sentence: Sentence, size: tuple[int, int], apart: int) -> str:
    return (
        f"the server makes {abs(apart)} visual tokens {'more' if apart > 0 else 'fewer'} of screens such as this of "
        f"{size[0]}x{size[1]} pixels: the limits of its image processor (preprocessor_config.json) are not those of "
        "the run"
    )


def _compare_answers(agent: VlmAgent, sentence: Sentence, served: Completion, check: ServeCheck) -> str | None:
    ours = _answer(agent, sentence)
    if served.text == ours.text:
        return None
    place = _first_other_token(agent, ours.ids, served.text)
    gap = ours.gaps[place]
    next_best = agent.sentences.text([*ours.ids[:place], ours.seconds[place]])
    if gap <= TIE and served.text.startswith(next_best):
        check.ties += 1
        return None
    return (
        f"the server answers {served.text!r}, this machine {ours.text!r}; they part at token {place} of the answer, "
        f"where the logit of this machine's choice is above the next by {gap:.0%} of the largest"
    )


def _first_other_token(agent: VlmAgent, ids: list[int], text: str) -> int:
    """The first of `ids` that does not continue `text`; the end mark, if the server's answer is only longer."""
    for place in range(len(ids)):
        if not text.startswith(agent.sentences.text(ids[: place + 1])):
            return place
    return len(ids) - 1


def _answer(agent: VlmAgent, sentence: Sentence) -> LocalAnswer:
    gaps: list[float] = []
    seconds: list[int] = []

    def choose(ids: list[int], best: int, logits: Callable[[], torch.Tensor]) -> int:
        here = logits().float()
        best_two = here.topk(2)
        first, second = best_two.values.tolist()
        gaps.append((first - second) / here.abs().max().item())
        seconds.append(int(best_two.indices[1]))
        return best

    limits = Limits(agent.sentences.end_mark, agent.sentences.language.max_tokens)
    with torch.inference_mode():
        ids = decode_sentence(cast(Decoder, agent.decoder), sentence, choose, limits)
    return LocalAnswer(agent.sentences.text(ids), ids, gaps, seconds)
