"""What stands around goals, screens and actions: the form of conversation that a model was pretrained in.

A text of a frame may hold the model's special tokens, because it is ours. Goals and typed texts never can: they are
tokenised as plain text, so nobody ends a turn by typing an end mark.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """start  goal  before_screen SCREEN cue action END  next_turn before_screen SCREEN cue action END …

    `goal` is a template with `{goal}`, tokenised as plain text. END is the tokenizer's end mark. `start` follows the
    tokenizer's start mark, where it has one.
    """

    start: str = ""
    goal: str = "Goal: {goal}\n"
    before_screen: str = ""
    cue: str = "\nAction: "
    next_turn: str = ""


PLAIN = Frame()
"""For language models that know no turns, such as Llama 2."""

QWEN_2023 = Frame(before_screen="<img>", cue="</img>\nAction: ", next_turn="\n")
"""Qwen-VL (2023), the base model: its picture marks, no turns. Its end mark <|endoftext|> ends an action."""

CHAT_TURNS = Frame(
    start="<|im_start|>system\nYou operate a phone by its screen, one action at a time.<|im_end|>\n<|im_start|>user\n",
    before_screen="<|vision_start|>",
    cue="<|vision_end|><|im_end|>\n<|im_start|>assistant\n",
    next_turn="\n<|im_start|>user\n",
)
"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: the goal and every screen are the user's turns, every action is the assistant's,
ended by <|im_end|>; what these models' own chat templates make of that conversation."""
