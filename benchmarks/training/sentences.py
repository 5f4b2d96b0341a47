"""Single-step samples of a trajectory, as in common practice."""

from itertools import pairwise

from vlm_agent.sentences import IGNORED, Sentence


def cut_into_steps(sentence: Sentence) -> list[Sentence]:
    """One sample per action: the whole history without a loss, and the action supervised."""
    learned = [label != IGNORED for label in sentence.labels]
    begins = [at for at, (before, now) in enumerate(pairwise([False, *learned])) if now and not before]
    ends = [at for at, (now, after) in enumerate(pairwise([*learned, False]), 1) if now and not after]
    return [
        Sentence(
            sentence.input_ids[:end],
            [IGNORED] * begin + sentence.labels[begin:end],
            sentence.kinds[:end],
            sentence.screens[: number + 1],
            roles=sentence.roles[:end],
            weights=sentence.weights[:end],
        )
        for number, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]
