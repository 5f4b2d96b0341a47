"""The files beside the weights of a text model that servers read.

chat_template.jinja      the turns of training, and the tokenizer's files
generation_config.json   greedy decoding that ends with the tokenizer's end mark

A conversation is the one that `agents/as_trained.py` writes: the goal as the system's message, every screen as HTML in
a message of the user, every action in one of the assistant. A server tokenises all of it at once, training segment by
segment. The template separates segments by nothing, or by a space for tokenizers that put one in front of each text
(SentencePiece, Llama 2). A tokenizer that then still joins segments otherwise gets the template without spaces.

A run on chats (`data.sentences: chat`) keeps the chat template of its tokenizer.
"""

from copy import copy
from pathlib import Path

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.sentences.templates import CHAT_TURNS_KEY, HTML_TURNS

_TEMPLATE = """\
{{- bos_token if bos_token else '' -}}
{%- for message in messages -%}
{%- set between = '' if loop.first or loop.previtem['role'] == 'assistant' else 'BETWEEN' -%}
{%- if message['role'] == 'assistant' -%}
{{- between + 'CUE' + 'BETWEEN' + message['content'] + eos_token -}}
{%- elif message['content'] -%}
{{- between + message['content'] -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- 'BETWEEN' + 'CUE' -}}
{%- endif -%}
"""

_SYSTEM, _USER = "Goal: open settings\n", '<p id=0 class="text" alt="Wi-Fi">Wi-Fi</p>\n'


def save_for_serving(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    served = copy(tokenizer)
    if not tokenizer.init_kwargs.get(CHAT_TURNS_KEY):
        served.chat_template = html_chat_template(tokenizer)
    served.save_pretrained(folder)
    options = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    GenerationConfig(do_sample=False, bos_token_id=tokenizer.bos_token_id, **options).save_pretrained(folder)


def html_chat_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """The Jinja template whose ids are those of a trajectory's first step, where one of ours has them."""
    cue = HTML_TURNS.cue.replace("\n", "\\n")
    templates = [_TEMPLATE.replace("CUE", cue).replace("BETWEEN", between) for between in ("", " ")]
    return next((template for template in templates if _is_exact(tokenizer, template)), templates[0])


def _is_exact(tokenizer: PreTrainedTokenizerBase, template: str) -> bool:
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}]
    written = tokenizer.apply_chat_template(
        messages, chat_template=template, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    segments = (tokenizer(text, add_special_tokens=False).input_ids for text in (_SYSTEM, _USER, HTML_TURNS.cue))
    return list(written) == sum(segments, start)
