"""Compares a served model with the run that it was merged from, step by step, and names the first difference.

prompt tokens   the server's count against the training sentence, with screens resized as in training
prompt ids      if the server has vLLM's /tokenize; other servers only report the count
screens         the visual tokens of screenshots in their own size: tests the limits of the server's image processor
answers         greedy, on the server and locally

A server in half precision may choose another token if the two largest local logits are about equal. Such an answer
counts as a tie.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import cast

import numpy as np
import torch

from vlm_agent.agents.agent import demonstrated
from vlm_agent.agents.as_trained import image_part, trained_messages
from vlm_agent.agents.decoding.greedy import Limits, decode_sentence
from vlm_agent.agents.llm.client import ChatEndpoint
from vlm_agent.agents.llm.completion import Completion
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import Episode, recorded_screen
from vlm_agent.sentences import SCREEN_TOKEN, Sentence

TIE = 0.04
"""The largest gap between the first and second logit of a tie, as a share of the largest absolute logit.

Measured on SmolLM2-135M: bfloat16 changes a logit by 1 % of the largest in the median, and by more than 4 % at one
position in a hundred.
"""


@dataclass
class ServeCheck:
    """The result of a comparison. `difference`: a message about the first difference, None without a difference.

    `steps`: the number of equal steps. `counted`: steps for which the server reported the number of prompt tokens.
    `tokenized`: steps for which it listed their ids. `sizes`: the number of different screen sizes whose visual tokens
    were compared. `ties`: answers that differ only by a tie.
    """

    steps: int = 0
    counted: int = 0
    tokenized: int = 0
    sizes: int = 0
    ties: int = 0
    difference: str | None = None


@dataclass(frozen=True)
class LocalAnswer:
    """`gaps`: for each token of the answer, the largest logit minus the second largest, as a share of the largest
    absolute logit. `seconds`: for each token, the id with the second largest logit."""

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
    """A message about the first difference of one step; None without a difference."""
    sentences, step = agent.sentences, episode.steps[number]
    sentence = sentences.prompt(replace(episode, steps=episode.steps[: number + 1]))
    history, screen = demonstrated(episode, number), recorded_screen(episode, number)
    messages = trained_messages(sentences, episode.goal, history, screen)
    listed, image = chat.tokenize(messages), getattr(agent.model.config, "image_token_id", None)
    # some server versions omit images from the list
    if listed is not None and (sentences.as_html or image in listed):
        check.tokenized += 1
        if (found := _compare_ids(agent, sentence, _collapsed(listed, image))) is not None:
            return found
    served = chat.completion(messages, sentences.max_answer_tokens)
    if served.tokens is not None:
        check.counted += 1
        if served.tokens[0] != len(sentence):
            return _compare_counts(agent, chat, messages, sentence, served.tokens[0])
        if not sentences.as_html and step.size not in sizes:
            sizes.add(step.size)
            resized = [*messages[:-1], _with_screen(messages[-1], cast("np.ndarray", step.screen.pixels))]
            read = chat.completion(resized, 1).tokens
            if read is not None and read[0] != len(sentence):
                return _other_screen(sentence, step.size, read[0] - len(sentence))
    return _compare_answers(agent, sentence, served, check)


def _compare_ids(agent: VlmAgent, sentence: Sentence, theirs: Sequence[int]) -> str | None:
    """A message about the first different id of the prompt.

    Each screen is compared as one placeholder, because some servers list one id per screen and others all of its ids.
    """
    ours = _collapsed(sentence.input_ids, SCREEN_TOKEN)
    for place, (local, remote) in enumerate(zip([*ours, None], [*theirs, None], strict=False)):
        if local != remote:
            remote_text, local_text = _token_text(agent, remote), _token_text(agent, local)
            return f"token {place} of the prompt is {remote_text} on the server and {local_text} in training"
    return None


def _collapsed(ids: Sequence[int], screen: int | None) -> list[int]:
    """One `SCREEN_TOKEN` for every run of `screen`."""
    runs = groupby(ids, key=lambda id_: id_ == screen)
    return [id_ for is_screen, run in runs for id_ in ([SCREEN_TOKEN] if is_screen else run)]


def _token_text(agent: VlmAgent, id_: int | None) -> str:
    if id_ is None:
        return "the end"
    return "a screen" if id_ == SCREEN_TOKEN else repr(agent.tokenizer.decode([id_]))


def _compare_counts(agent: VlmAgent, chat: ChatEndpoint, messages: list[dict], sentence: Sentence, served: int) -> str:
    """A message about a different number of prompt tokens, which says whether text or screens cause it.

    The request is repeated with the smallest screens: an unchanged difference is caused by the text.
    """
    surplus = served - len(sentence)
    counts = f"the prompt has {served} tokens on the server and {len(sentence)} in training"
    cause = "its chat template or tokenizer is not that of the run"
    if agent.sentences.as_html:
        return f"{counts}: {cause}"
    dot = np.full((1, 1, 3), 128, np.uint8)  # resized to the smallest screen
    smallest = np.ascontiguousarray(agent.sentences.screens.prepare(dot).transpose(1, 2, 0))
    small = [_with_screen(message, smallest) if message["role"] == "user" else message for message in messages]
    tokens = agent.sentences.screens.tokens(*smallest.shape[:2])
    expected = len(sentence) - sentence.input_ids.count(SCREEN_TOKEN) + tokens * len(sentence.screens)
    again = chat.completion(small, 1).tokens
    if again is not None and again[0] - expected == surplus:
        return f"{counts}, and the difference is the same with smaller screens: {cause}"
    return _other_screen(sentence, sentence.screens[-1].shape[1:], surplus)


def _with_screen(message: dict, pixels: np.ndarray) -> dict:
    return message | {"content": [*message["content"][:-1], image_part(pixels)]}


def _other_screen(sentence: Sentence, size: tuple[int, int], surplus: int) -> str:
    return (
        f"the prompt has {abs(surplus)} {'more' if surplus > 0 else 'fewer'} visual tokens on the server, with screens "
        f"such as this one of {size[0]}x{size[1]} pixels: the limits of its image processor "
        "(preprocessor_config.json) are not those of the run"
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
        f"the server answers {served.text!r}, this machine {ours.text!r}; they differ from token {place} of the answer "
        f"on, where the two largest logits of this machine differ by {gap:.0%} of the largest"
    )


def _first_other_token(agent: VlmAgent, ids: list[int], text: str) -> int:
    """The index of the first of `ids` at which `text` differs; the end mark's index if `text` is only longer."""
    others = (place for place in range(len(ids)) if not text.startswith(agent.sentences.text(ids[: place + 1])))
    return next(others, len(ids) - 1)


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

    limits = Limits(agent.sentences.end_mark, agent.sentences.max_answer_tokens)
    with torch.inference_mode():
        ids = decode_sentence(agent.decoder, sentence, choose, limits)
    return LocalAnswer(agent.sentences.text(ids), ids, gaps, seconds)
