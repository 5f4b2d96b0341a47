"""The cost of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: the sizes of their vision towers, their FLOPs and activations."""

from dataclasses import dataclass
from itertools import pairwise

from transformers import PretrainedConfig

from vlm_agent.models.cost import DecoderOnlyCost, Flops, Precision, attention_flops, linear_flops
from vlm_agent.recipe.model import TrainedParts, Training


@dataclass(frozen=True)
class TowerShape:
    """A Qwen-VL vision tower, from patches to visual tokens.

    `mlp` is the width of the MLP, of two matrices or, `gated`, of three; `patch` pixels a side, `patch_values` numbers
    in one (two equal frames); `merge` x `merge` patches make a token; `deepstack` mergers stand beside the last one
    (Qwen3-VL). A layer attends within windows of `window` patches a side, unless it is one of `full_layers`; None: to
    all patches.
    """

    layers: int
    width: int
    mlp: int
    gated: bool
    patch: int
    patch_values: int
    merge: int
    outputs: int
    deepstack: int = 0
    window: int | None = None
    full_layers: int = 0

    @property
    def layer_maps(self) -> tuple[tuple[int, int], ...]:
        width, mlp = self.width, self.mlp
        return (width, 3 * width), (width, width), *((width, mlp),) * (1 + self.gated), (mlp, width)

    @property
    def merger_maps(self) -> tuple[tuple[int, int], ...]:
        merged = self.width * self.merge**2
        return (merged, merged), (merged, self.outputs)

    def pairs(self, rows: int, columns: int) -> int:
        """(query, key) pairs of a screen of `rows` x `columns` patches, over all layers."""
        everything = (rows * columns) ** 2
        if self.window is None:
            return self.layers * everything
        inside = _squares(rows, self.window) * _squares(columns, self.window)
        return self.full_layers * everything + (self.layers - self.full_layers) * inside


def _squares(length: int, window: int) -> int:
    """The sum of the squared lengths of the pieces that `length` is cut into from its start, `window` each but the
    last."""
    return sum((end - start) ** 2 for start, end in pairwise([*range(0, length, window), length]))


class QwenVLCost(DecoderOnlyCost):
    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config.text_config)
        self.tower = tower_shape(config.vision_config)

    def screen_flops(self, size: tuple[int, int], train: TrainedParts, rank: int, checkpointing: bool) -> Flops:
        tower, (rows, columns) = self.tower, self._patches(size)
        patches, tokens = rows * columns, rows * columns // tower.merge**2
        kind, trained = train.vision, train.vision != "frozen"
        stem_kind: Training = "full" if kind == "full" else "frozen"
        stem = linear_flops([(tower.patch_values, tower.width)], patches, stem_kind, 0, False)
        first_map, *later_maps = tower.layer_maps
        layers = linear_flops([first_map], patches, kind, rank, kind == "full")
        layers += linear_flops([first_map], patches, kind, rank, trained) * (tower.layers - 1)
        layers += linear_flops(later_maps, patches, kind, rank, trained) * tower.layers
        layers += attention_flops(tower.width, tower.pairs(rows, columns), trained)
        deepstack = linear_flops(tower.merger_maps, tokens, kind, rank, trained) * tower.deepstack
        first, second = tower.merger_maps
        merger = linear_flops([first], tokens, train.projector, rank, trained or train.projector == "full")
        merger += linear_flops([second], tokens, train.projector, rank, trained or train.projector != "frozen")
        again = Flops(recomputed=layers.forward if checkpointing and trained else 0)
        return stem + layers + deepstack + merger + again

    def screen_bytes(
        self, size: tuple[int, int], train: TrainedParts, precision: Precision, checkpointing: bool
    ) -> int:
        (rows, columns), width, tower = self._patches(size), precision.bytes, self.tower
        if train.vision == "frozen":
            return width * rows * columns * (2 * tower.width + max(4 * tower.width, (2 + tower.gated) * tower.mlp))
        one = 8 * tower.width + width * (7 * tower.width + (3 + tower.gated) * tower.mlp)  # a layer, for one patch
        return rows * columns * (tower.layers * width * tower.width + one if checkpointing else tower.layers * one)

    def _patches(self, size: tuple[int, int]) -> tuple[int, int]:
        return size[0] // self.tower.patch, size[1] // self.tower.patch


def tower_shape(config: PretrainedConfig) -> TowerShape:
    """`config`: of the tower. Qwen2-VL's has other names for widths; a window is Qwen2.5-VL's, deepstack Qwen3-VL's."""
    patch, merge = config.patch_size, config.spatial_merge_size
    if hasattr(config, "embed_dim"):
        width, mlp, outputs = config.embed_dim, int(config.embed_dim * config.mlp_ratio), config.hidden_size
    else:
        width, mlp, outputs = config.hidden_size, config.intermediate_size, config.out_hidden_size
    window = getattr(config, "window_size", None)
    return TowerShape(
        layers=config.depth,
        width=width,
        mlp=mlp,
        gated=config.hidden_act == "silu",
        patch=patch,
        patch_values=config.in_channels * config.temporal_patch_size * patch**2,
        merge=merge,
        outputs=outputs,
        deepstack=len(getattr(config, "deepstack_visual_indexes", ())),
        # Rounded as in the model: a whole number of tokens a side.
        window=None if window is None else window // merge // patch * merge,
        full_layers=len({*getattr(config, "fullatt_block_indexes", ())} & {*range(config.depth)}),
    )
