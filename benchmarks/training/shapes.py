"""The sizes of the models. Imports only the standard library, because the peer's environment uses it too."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Shape:
    """`family`: llama_vit, qwen2_5_vl or qwen3_vl. `text` and `vision`: transformers' keys, without the vocabulary.

    `screen` is (height, width) in pixels, `grid` (rows, columns) of visual tokens; `batch`: the episodes of one
    optimiser step. Qwen2.5-VL makes a token of 28 x 28 pixels, Qwen3-VL of 32 x 32, so there `grid` follows from
    `screen`.
    """

    name: str
    about: str
    family: str
    vocabulary: int
    text: dict = field(repr=False)
    vision: dict = field(repr=False)
    screen: tuple[int, int] = (448, 224)
    grid: tuple[int, int] = (16, 8)
    batch: int = 2


def shape_named(name: str, vocabulary: int | None = None) -> Shape:
    """One of the shapes below, optionally with another size of the vocabulary."""
    shape = next(shape for shape in (*SHAPES, *IN_PROPORTION, *TINY, *GPU_SHAPES) if shape.name == name)
    return shape if vocabulary is None else replace(shape, vocabulary=vocabulary)


_SMALL_LLAMA = {
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}
_SMALL_VIT = {
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "patch_size": 14,
}
_SMALL_QWEN = {
    "hidden_size": 256,
    "intermediate_size": 1344,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]},
}
_SMALL_QWEN_VISION = {
    "hidden_size": 128,
    "intermediate_size": 344,
    "depth": 4,
    "num_heads": 4,
    "out_hidden_size": 256,
    "fullatt_block_indexes": [3],
}
_TINY_LAYERS = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
_TINY_VIT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "patch_size": 14,
}
_TINY_QWEN_VISION = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "depth": 2,
    "num_heads": 2,
    "out_hidden_size": 128,
    "fullatt_block_indexes": [1],
}
_LLAMA_7B = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
}
_VIT_L = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 14,
}
_QWEN_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
}
_QWEN_7B_VISION = {
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "depth": 32,
    "num_heads": 16,
    "out_hidden_size": 3584,
    "fullatt_block_indexes": [7, 15, 23, 31],
}

_QWEN_3_8B = {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 5e6,
        "mrope_section": [24, 20, 20],
        "mrope_interleaved": True,
    },
}
_QWEN_3_8B_VISION = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "depth": 27,
    "num_heads": 16,
    "out_hidden_size": 4096,
    "patch_size": 16,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [8, 16, 24],
}

SHAPES = (
    Shape("llama_vit", "Llama + ViT, Llama-2's vocabulary", "llama_vit", 32_000, _SMALL_LLAMA, _SMALL_VIT),
    Shape("qwen2_5_vl", "Qwen2.5-VL, its vocabulary", "qwen2_5_vl", 152_064, _SMALL_QWEN, _SMALL_QWEN_VISION),
)
"""What a CPU trains. In a model so small, a real vocabulary is a larger share of the work than in a large one."""

IN_PROPORTION = (
    Shape("llama_vit_7b_head", "Llama + ViT, head in 7B's proportion", "llama_vit", 512, _SMALL_LLAMA, _SMALL_VIT),
    Shape("qwen_7b_head", "Qwen2.5-VL, head in 7B's proportion", "qwen2_5_vl", 3_200, _SMALL_QWEN, _SMALL_QWEN_VISION),
)
"""The same with a vocabulary so small that head and layers weigh as in 7B: 2 % (Llama-2) and 8 % (Qwen2.5-VL)."""

TINY = (
    Shape("llama_vit_tiny", "Llama + ViT of a test", "llama_vit", 512, _TINY_LAYERS, _TINY_VIT),
    Shape("qwen_tiny", "Qwen2.5-VL of a test", "qwen2_5_vl", 512, _SMALL_QWEN | _TINY_LAYERS, _TINY_QWEN_VISION),
)
"""What runs within seconds also on a CPU that computes bfloat16 in software."""

GPU_SHAPES = (
    Shape("llama2_7b_vit_l", "Llama-2-7B + ViT-L", "llama_vit", 32_000, _LLAMA_7B, _VIT_L, (896, 448), batch=8),
    Shape("qwen2_5_vl_7b", "Qwen2.5-VL-7B", "qwen2_5_vl", 152_064, _QWEN_7B, _QWEN_7B_VISION, (1092, 532), (39, 19)),
    Shape("qwen3_vl_8b", "Qwen3-VL-8B", "qwen3_vl", 151_936, _QWEN_3_8B, _QWEN_3_8B_VISION, (1088, 544), (34, 17)),
)
"""What a GPU trains: the sizes of the real models, and screens of a phone with twice the height of its width, as the
recipes' limits leave them. Two episodes of Qwen-VL are 12,000 tokens, eight of Llama+ViT 9,000."""
