"""The files beside the weights of a whole Qwen-VL that `AutoProcessor` and servers read.

preprocessor_config.json   the image processor: this model's own limits of pixels, mean and standard deviation
chat_template.jinja        the chat template of `CHAT_TURNS`, and the tokenizer's files
generation_config.json     greedy decoding that ends with the template's end mark

Published checkpoints have such files too. Theirs have other limits of pixels, and a repetition penalty, which servers
apply unless a request overrides it: a fine-tuned model would see and answer otherwise than in training.
"""

import json
from copy import copy
from pathlib import Path

from transformers import GenerationConfig, PreTrainedTokenizerBase
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

from vlm_agent.models.qwen_vl.model import ReadsScreens
from vlm_agent.models.qwen_vl.processor import CHAT_TURNS

PREPROCESSOR_FILE = "preprocessor_config.json"

CHAT_TEMPLATE = """\
{{- bos_token if bos_token else '' -}}
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] is string -%}
{{- message['content'] -}}
{%- else -%}
{%- for content in message['content'] -%}
{%- if content['type'] in ('image', 'image_url') -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- else -%}
{{- content['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
"""Writes a conversation in the words of training as training wrote it; published tokenizers have no start mark."""


def save_for_serving(
    model: ReadsScreens, tokenizer: PreTrainedTokenizerBase, pixels: tuple[int, int], folder: Path
) -> None:
    """`pixels`: the least and the most of a screen. Writes nothing for a model that transformers does not know."""
    config, vision = model.config, model.config.vision_config
    if config.model_type not in PROCESSOR_MAPPING_NAMES:
        return
    least, most = pixels
    processor = {
        "processor_class": PROCESSOR_MAPPING_NAMES[config.model_type],
        "image_processor_type": "Qwen2VLImageProcessor",
        "size": {"shortest_edge": least, "longest_edge": most},
        "min_pixels": least,  # of transformers before version 5
        "max_pixels": most,
        "patch_size": vision.patch_size,
        "merge_size": vision.spatial_merge_size,
        "temporal_patch_size": vision.temporal_patch_size,
        "image_mean": list(model.image_mean),
        "image_std": list(model.image_std),
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
        "rescale_factor": 1 / 255,
        "resample": 3,  # bicubic
    }
    (folder / PREPROCESSOR_FILE).write_text(json.dumps(processor, indent=2) + "\n", encoding="utf-8")
    served = copy(tokenizer)
    served.chat_template = CHAT_TEMPLATE
    served.save_pretrained(folder)
    end_mark = tokenizer.convert_tokens_to_ids(CHAT_TURNS.end)
    ends = list(dict.fromkeys([end_mark, tokenizer.eos_token_id]))
    GenerationConfig(do_sample=False, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id).save_pretrained(folder)
