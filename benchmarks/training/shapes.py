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


def _decoder(width: int, mlp_width: int, layers: int, heads: int, key_value_heads: int, **others) -> dict:
    return {
        "hidden_size": width,
        "intermediate_size": mlp_width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
    } | others


def _vit(width: int, mlp_width: int, layers: int, heads: int) -> dict:
    sizes = {"hidden_size": width, "intermediate_size": mlp_width, "num_hidden_layers": layers}
    return sizes | {"num_attention_heads": heads, "patch_size": 14}


def _qwen_vision(width: int, mlp_width: int, layers: int, heads: int, decoder_width: int, **others) -> dict:
    sizes = {"hidden_size": width, "intermediate_size": mlp_width, "depth": layers, "num_heads": heads}
    return sizes | {"out_hidden_size": decoder_width} | others


def _rope(theta: float, sections: list[int], **others) -> dict:
    return {"rope_type": "default", "rope_theta": theta, "mrope_section": sections} | others


_SMALL_LLAMA = _decoder(256, 688, layers=8, heads=4, key_value_heads=4)
_SMALL_VIT = _vit(128, 512, layers=4, heads=4)
_SMALL_ROPE = _rope(1e6, [8, 12, 12])
_SMALL_QWEN = _decoder(256, 1344, layers=8, heads=4, key_value_heads=2, rope_parameters=_SMALL_ROPE)
_SMALL_QWEN_VISION = _qwen_vision(128, 344, layers=4, heads=4, decoder_width=256, fullatt_block_indexes=[3])

_TINY_LAYERS = _decoder(128, 256, layers=4, heads=2, key_value_heads=1)
_TINY_VIT = _vit(64, 128, layers=2, heads=2)
_TINY_QWEN_VISION = _qwen_vision(64, 128, layers=2, heads=2, decoder_width=128, fullatt_block_indexes=[1])

_LLAMA_7B = _decoder(4096, 11008, layers=32, heads=32, key_value_heads=32, max_position_embeddings=4096)
_VIT_L = _vit(1024, 4096, layers=24, heads=16)
_QWEN_7B_ROPE = _rope(1e6, [16, 24, 24])
_QWEN_7B = _decoder(3584, 18944, layers=28, heads=28, key_value_heads=4, rope_parameters=_QWEN_7B_ROPE)
_QWEN_7B_VISION = _qwen_vision(
    1280, 3420, layers=32, heads=16, decoder_width=3584, fullatt_block_indexes=[7, 15, 23, 31]
)
_QWEN_3_ROPE = _rope(5e6, [24, 20, 20], mrope_interleaved=True)
_QWEN_3_8B = _decoder(4096, 12288, layers=36, heads=32, key_value_heads=8, head_dim=128, rope_parameters=_QWEN_3_ROPE)
_QWEN_3_8B_VISION = _qwen_vision(1152, 4304, layers=27, heads=16, decoder_width=4096, patch_size=16) | {
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
