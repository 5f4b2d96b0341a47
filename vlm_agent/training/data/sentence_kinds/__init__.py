"""Kinds of sentences (`data.sentences`). One kind per file.

To add one: write a file with a `SentenceKind`, import it here and add it to `SENTENCE_KINDS`; an entry of `SENTENCES`
in `recipe/data.py` has what a recipe may set with it. The families that can collate it name it in their
`Processor.sentence_kinds`.
"""

from vlm_agent.training.data.sentence_kinds.chain_of_actions import ChainOfActionsKind
from vlm_agent.training.data.sentence_kinds.chat import ChatKind
from vlm_agent.training.data.sentence_kinds.elements import ElementKind
from vlm_agent.training.data.sentence_kinds.kind import PassCounts, SentenceKind, Writer
from vlm_agent.training.data.sentence_kinds.trajectory import TrajectoryKind

__all__ = ["SENTENCE_KINDS", "PassCounts", "SentenceKind", "Writer"]

SENTENCE_KINDS: dict[str, type[SentenceKind]] = {
    "trajectory": TrajectoryKind,
    "elements": ElementKind,
    "chain_of_actions": ChainOfActionsKind,
    "chat": ChatKind,
}
