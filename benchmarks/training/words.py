"""A Qwen-like tokenizer trained on the texts of the episodes: byte-level BPE, single digits, ChatML.

It needs no download. The vocabularies of the models are larger than the tokenizer's, as in the published models. Both
families use it; an action has about ten tokens, as with the published tokenizers. Does not import vlm_agent.
"""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

SIZE = 480
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
}
_PIECES = Regex(r"\p{N}| ?[^\s\p{L}\p{N}]+| ?\p{L}+|\s+")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "{{ '<|im_start|>assistant\n' }}"
    "{% generation %}{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{{ '<|im_end|>' }}"
    "{% endgeneration %}{{ '\n' }}"
    "{% else %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{{ '<|im_end|>\n' }}"
    "{% endif %}{% endfor %}"
)
"""The ChatML template of Qwen2.5-VL; it marks assistant tokens and their end mark for the loss."""


def write_tokenizer(folder: Path, texts: Iterable[str]) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(_PIECES, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [PAD, START, END, *VISION.values()]
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, additional_special_tokens=list(VISION.values())
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder)


def special_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """What Qwen's configuration calls these tokens → their ids."""
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in VISION.items()}
