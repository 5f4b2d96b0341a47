"""Replies that cannot be read are asked for once more, in the same chat, with the reason."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vlm_agent.agents.llm.prompted import Replies
from vlm_agent.agents.llm.prompts import PromptFile, assistant, user
from vlm_agent.agents.llm.replies import UnreadReplyError, sendable

Read = TypeVar("Read")


@dataclass
class RepairedCalls:
    """The calls of one step. `repaired`: replies that were asked for once more.

    `prompts` has a text `repair` with $reason. `typical`: replies for estimates, by name.
    """

    replies: Replies
    prompts: PromptFile
    max_tokens: int
    typical: Mapping[str, str] = field(default_factory=dict)
    repaired: int = 0

    def read(
        self,
        messages: Sequence[dict[str, Any]],
        read: Callable[[str], Read],
        typical: str,
        tokens: int,
        counts: bool = True,
        kind: str = "",
    ) -> Read:
        """What `read` makes of the reply, or of a second one. `typical`: a reply for estimates, or its name. `kind`: as
        for `Replies.ask`.

        Raises UnreadReplyError if the second reply cannot be read either.
        """
        typical = self.typical.get(typical, typical)
        text = self.replies.ask(messages, self.max_tokens, typical, tokens, counts, kind)
        try:
            return read(text)
        except UnreadReplyError as error:
            request = self.prompts.fill("repair", reason=str(error))
        self.repaired += counts
        again = [*messages, assistant(sendable(text)), user(request)]
        text = self.replies.ask(again, self.max_tokens, typical, tokens, counts, kind)
        try:
            return read(text)
        except UnreadReplyError as error:
            error.text = text
            raise
