"""A chat as a sentence, by the chat template of the tokenizer.

The ids before the answer are those that a server computes from the same messages; the answer ends with the tokenizer's
end mark. A special token that is written out in a message is one here too, because it is one on a server.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from vlm_agent.errors import RecipeError
from vlm_agent.sentences import Sentence
from vlm_agent.sentences.segments import ASSISTANT, USER, Segment, Tokens, encode, no_screen
from vlm_agent.sentences.templates import CHAT_TURNS_KEY
from vlm_agent.training.data.chats.reading import Chat

DEFAULT_TEMPLATE = Path(__file__).with_name("default_template.jinja").read_text(encoding="utf-8")
"""For a tokenizer without a chat template, such as a word tokenizer."""

MARKS = ("System:\n", "User:\n", "Assistant:\n")
"""The texts of `DEFAULT_TEMPLATE`."""


def with_turns(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, in place, with its own chat template or the default one, which is saved with the model."""
    if tokenizer.chat_template is None:
        tokenizer.chat_template = DEFAULT_TEMPLATE
    tokenizer.init_kwargs[CHAT_TURNS_KEY] = True
    return tokenizer


@dataclass(frozen=True)
class ChatSentences(Tokens):
    """`tokenizer`: with a chat template, see `with_turns`. `prompt_weight`: the loss weight of a prompt's tokens; 0:
    they are not supervised."""

    prompt_weight: float = 0.0

    def build(self, chat: Chat) -> Sentence:
        """The sentence of `segments`."""
        sentence = encode(self.segments(chat), self, no_screen)
        sentence.about = chat.where
        return sentence

    def segments(self, chat: Chat) -> list[Segment]:
        """Raises RecipeError for a chat that the template cannot write, or whose answer is not the text after its
        prompt or holds the end mark."""
        end = self.tokenizer.eos_token
        if end in chat.messages[-1]["content"]:
            raise RecipeError(
                f"{chat.where}: the answer holds {end}, which ends an answer of this tokenizer, so the rest could not "
                "be learned; remove it, or the chat"
            )
        prompt = self._written(chat, last=len(chat.messages) - 1, add_generation_prompt=True)
        whole = self._written(chat, last=len(chat.messages), add_generation_prompt=False)
        if not whole.startswith(prompt):
            raise RecipeError(f"{chat.where}: the tokenizer's chat template writes a chat otherwise than its prompt")
        read = Segment(prompt, USER, special=True)
        if self.prompt_weight:  # no output predicts the first token
            read = replace(read, role="prompt", weight=self.prompt_weight, unlearned=1)
        return [read, *self._answer(whole[len(prompt) :])]

    def _written(self, chat: Chat, last: int, add_generation_prompt: bool) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    chat.messages[:last], add_generation_prompt=add_generation_prompt, tokenize=False
                )
            )
        except Exception as error:  # noqa: BLE001 (a template may raise whatever it wants)
            raise RecipeError(f"{chat.where}: the tokenizer's chat template refuses it: {error}") from None

    def _answer(self, text: str) -> list[Segment]:
        """The answer up to its first end mark, which is added where the template writes none."""
        end, ids = self.tokenizer.eos_token_id, self.ids(text, special=True)
        kept = ids.index(end) if end in ids else None
        answer = Segment(text, ASSISTANT, special=True, role="action", kept=kept)
        return [answer, Segment(mark=end, role="action")]
