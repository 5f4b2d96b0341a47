"""Chat templates: the texts around goals, screens and actions, in the conversation format of the pretrained model.

The texts of a template may contain special tokens. Goals and actions are tokenised as plain text, so an end mark in a
goal or in typed text does not end a turn.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChatTemplate:
    """start  goal  before_screen SCREEN cue action END  next_turn before_screen SCREEN cue action END …

    `start`: follows the tokenizer's start mark, if it has one. `goal`: a format string with `{goal}`, tokenised as
    plain text. `end`: the special token END; "" for the tokenizer's end mark, which for a base model may differ from
    the end mark of its chat template. `system`: the text of the system turn, for a template of system, user and
    assistant turns; None for a template that cannot be written as messages of a chat endpoint.
    """

    start: str = ""
    goal: str = "Goal: {goal}\n"
    before_screen: str = ""
    cue: str = "\nAction: "
    next_turn: str = ""
    end: str = ""
    system: str | None = None


HTML_TURNS = ChatTemplate(cue="Action:\n")
"""For text models. Goal and HTML end with a line feed, and so does the cue: a server's tokenizer, which reads a whole
conversation at once, separates them as training does."""

CHAT_TURNS_KEY = "trained_on_chats"
"""The key of tokenizer_config.json of a run on chats, whose tokenizer has the chat template of its training."""

PLAIN = ChatTemplate()
"""For language models without chat turns, such as Llama 2."""
