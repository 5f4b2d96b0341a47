"""What stands around goals, screens and actions: the form of conversation that a model was pretrained in.

A text of a frame may hold the model's special tokens, because it is ours. Goals and typed texts never can: they are
tokenised as plain text, so a typed end mark does not end a turn.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChatTemplate:
    """start  goal  before_screen SCREEN cue action END  next_turn before_screen SCREEN cue action END …

    `goal` is a template with `{goal}`, tokenised as plain text. `end` is the special token END; "": the tokenizer's end
    mark, which of a base model may be another one than its chat template's. `start` follows the tokenizer's start mark,
    where it has one. `system`: the system turn's text, for a template whose texts are a chat of system, user and
    assistant turns; None: a chat endpoint cannot be sent these texts.
    """

    start: str = ""
    goal: str = "Goal: {goal}\n"
    before_screen: str = ""
    cue: str = "\nAction: "
    next_turn: str = ""
    end: str = ""
    system: str | None = None


PLAIN = ChatTemplate()
"""For language models that know no turns, such as Llama 2."""
