"""Llama+ViT: a vision encoder, a linear projection and a Llama language model (Smartphone Assistant, section 3.1.1).

A screen becomes `rows * columns` visual tokens: the encoder's feature map, pooled to that grid, projected into the
language model's embedding space and put where the sequence holds `SCREEN_TOKEN`. Any encoder of transformers, and any
decoder that is built as Llama is, can be used, from a checkpoint or from a configuration.

Four options are for models without pretrained parts (`models/llama_vit/from_scratch.py`), off by default:
`visual_merge`, `visual_norm`, `visual_positions` and `element_loss`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from vlm_agent.errors import CheckpointError
from vlm_agent.models.attention import packed_options, to_device
from vlm_agent.models.llama_vit.long_context import extend_context, first_position
from vlm_agent.models.loss import Policy, SupervisedOutput, supervise
from vlm_agent.models.pretrained import explain_missing_extras
from vlm_agent.models.weights.precision import seen_dtype
from vlm_agent.sentences import IGNORED, SCREEN_TOKEN
from vlm_agent.sentences.packing import filled, places
from vlm_agent.sentences.templates import PLAIN, ChatTemplate


@dataclass(frozen=True)
class ProjectorKind:
    """`module`: builds the projector from (features, hidden, LlamaViTConfig). `pools`: its input is pooled to the
    visual grid. `bicubic`: screens are resized by bicubic interpolation, as in Qwen's code. `template`: the text around
    goals, screens and actions."""

    module: Callable[[int, int, Any], nn.Module]
    pools: bool = True
    bicubic: bool = False
    template: ChatTemplate = PLAIN


PROJECTORS = {
    "linear": "vlm_agent.models.llama_vit.model:LINEAR",
    "resampler": "vlm_agent.models.qwen_vl_2023:RESAMPLER",
}
"""`LlamaViTConfig.projector` → module:object of its `ProjectorKind`."""


def projector_kind(name: str) -> ProjectorKind:
    """Imports the projector's package, which registers its vision tower with transformers."""
    if name not in PROJECTORS:
        raise CheckpointError(f"projector {name!r} is unknown; there are {', '.join(PROJECTORS)}")
    return resolve_name(PROJECTORS[name])


class Projector(nn.Module):
    """A linear map from vision features to visual tokens, with the options of `LlamaViTConfig` for models from scratch.

    One module, so that an adapter saves all of it (`modules_to_save`).
    """

    def __init__(self, features: int, hidden: int, config: Any) -> None:
        super().__init__()
        self.norm = config.visual_norm
        self.merge = config.visual_merge
        together = features * self.merge[0] * self.merge[1]
        self.linear = nn.Linear(together, hidden)
        nn.init.normal_(self.linear.weight, std=together**-0.5)
        nn.init.zeros_(self.linear.bias)
        rows, columns = config.visual_grid
        self.positions = nn.Parameter(grid_sinusoid(rows, columns, hidden)) if config.visual_positions else None

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, tokens, features) to visual tokens (N, tokens, hidden), before and after positions are added."""
        seen = self.linear(features.to(self.linear.weight.dtype))
        if self.norm is not None:
            seen = functional.rms_norm(seen, seen.shape[-1:]) * self.norm
        return seen, seen if self.positions is None else seen + self.positions


LINEAR = ProjectorKind(Projector)


def merged(features: torch.Tensor, grid: tuple[int, int], merge: tuple[int, int]) -> torch.Tensor:
    """A feature map (N, channels, rows, columns) pooled to `grid` times `merge` places, and (N, channels * merge[0] *
    merge[1], *grid) of it: the features of each token's places, concatenated."""
    fine = (grid[0] * merge[0], grid[1] * merge[1])
    pooled = functional.adaptive_avg_pool2d(features, fine)
    places = pooled.unflatten(3, (grid[1], merge[1])).unflatten(2, (grid[0], merge[0]))
    return places.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)


def grid_sinusoid(rows: int, columns: int, width: int) -> torch.Tensor:
    """(rows * columns, width): the first half of each vector is a sinusoid of y, the second of x, both in [0, 1]."""
    y, x = torch.meshgrid((torch.arange(rows) + 0.5) / rows, (torch.arange(columns) + 0.5) / columns, indexing="ij")
    return torch.cat([sinusoid(y.flatten(), width // 2), sinusoid(x.flatten(), width // 2)], dim=-1)


def sinusoid(fraction: torch.Tensor, width: int) -> torch.Tensor:
    """(n,) fractions of the screen to (n, width), wavelengths from twice the screen down to a twentieth of it."""
    frequencies = math.pi * torch.exp(math.log(40) * torch.arange(width // 2) / (width // 2))
    angles = fraction[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class LlamaViTConfig(PretrainedConfig):
    """`screen_size` (height, width) in pixels: the input of the encoder. `visual_grid`: (rows, columns) of tokens.

    `projector`: one `linear` map, or the `resampler` of Qwen-VL (2023), which ignores the options from scratch.
    `visual_merge`: (rows, columns) of neighbouring features that are concatenated in one visual token; pooling would
    blur the letters of a word.
    `visual_norm`: RMS to which projected visual tokens are scaled (None: left as they are).
    `visual_positions`: add a learned position to each visual token, started from a 2-D sinusoid.
    `element_loss`: weight of the loss that names, from each visual token alone, the word or icon under it.
    `logit_scale`: factor on the hidden state before the head.
    `ntk_length`, `log_n_length`: tokens beyond which dynamic NTK and log-n attention apply in inference; None: never.
    """

    model_type = "llama_vit"
    sub_configs = {"vision_config": AutoConfig, "text_config": AutoConfig}  # noqa: RUF012 (transformers' own shape)

    def __init__(
        self,
        vision_config: dict | PretrainedConfig | None = None,
        text_config: dict | PretrainedConfig | None = None,
        screen_size: Sequence[int] = (896, 448),
        visual_grid: Sequence[int] = (16, 8),
        image_mean: Sequence[float] = (0.5, 0.5, 0.5),
        image_std: Sequence[float] = (0.5, 0.5, 0.5),
        projector: str = "linear",
        visual_merge: Sequence[int] = (1, 1),
        visual_norm: float | None = None,
        visual_positions: bool = False,
        element_loss: float = 0.0,
        logit_scale: float = 1.0,
        ntk_length: int | None = None,
        log_n_length: int | None = None,
        **kwargs,
    ) -> None:
        projector_kind(projector)  # its package may bring the vision tower's class
        self.vision_config = _sub_config(vision_config)
        self.text_config = _sub_config(text_config)
        self.screen_size = tuple(screen_size)
        self.visual_grid = tuple(visual_grid)
        self.image_mean = tuple(image_mean)
        self.image_std = tuple(image_std)
        self.projector = projector
        self.visual_merge = tuple(visual_merge)
        self.visual_norm = visual_norm
        self.visual_positions = visual_positions
        self.element_loss = element_loss
        self.logit_scale = logit_scale
        self.ntk_length = ntk_length
        self.log_n_length = log_n_length
        super().__init__(**kwargs)

    @property
    def tokens_per_screen(self) -> int:
        return self.visual_grid[0] * self.visual_grid[1]


_NO_TOWER = (
    "model.vision is a {!r}, which reads no pixels alone; take a vision encoder, such as vit, dinov2, clip or siglip"
)


def _sub_config(config: Any) -> Any:
    return AutoConfig.for_model(**config) if isinstance(config, dict) else config


class LlamaViT(PreTrainedModel):
    """Vision encoder, projector and language model.

    `parts`: the module path of each part that a recipe freezes, adapts or trains in full.
    """

    config_class = LlamaViTConfig
    parts = {  # noqa: RUF012 (a constant)
        "vision": "vision",
        "projector": "projector",
        "embeddings": "language_model.model.embed_tokens",
        "language_model": "language_model.model.layers",
        "norm": "language_model.model.norm",
        "head": "language_model.lm_head",
    }
    base_model_prefix = ""
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["LlamaDecoderLayer", "Qwen2DecoderLayer"]  # noqa: RUF012 (transformers' own shape)

    vision: PreTrainedModel
    language_model: PreTrainedModel
    projector: nn.Module

    def __init__(
        self,
        config: LlamaViTConfig,
        vision: PreTrainedModel | None = None,
        language_model: PreTrainedModel | None = None,
    ) -> None:
        super().__init__(config)
        with explain_missing_extras("vision"):
            self.vision = vision if vision is not None else AutoModel.from_config(config.vision_config)
        if self.vision.main_input_name != "pixel_values":
            raise CheckpointError(_NO_TOWER.format(config.vision_config.model_type))
        self.language_model = (
            language_model if language_model is not None else AutoModelForCausalLM.from_config(config.text_config)
        )
        extend_context(self.language_model, config.ntk_length is not None, config.log_n_length)
        hidden = config.text_config.hidden_size
        self.projector = projector_kind(config.projector).module(_feature_width(self.vision), hidden, config)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Sub-models and the projector initialise themselves."""

    def train(self, mode: bool = True) -> "LlamaViT":
        """A frozen encoder stays in evaluation mode: no dropout, no update of batch statistics."""
        super().train(mode)
        if not any(parameter.requires_grad for parameter in self.vision.parameters()):
            self.vision.eval()
        return self

    def get_input_embeddings(self) -> Any:
        return self.language_model.get_input_embeddings()

    def get_output_embeddings(self) -> Any:
        return self.language_model.get_output_embeddings()

    def see(self, screens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """uint8 screens (N, 3, height, width) of `screen_size` to visual tokens (N, tokens, hidden), before and after
        positions are added. A frozen encoder builds no graph.
        """
        trained = any(parameter.requires_grad for parameter in self.vision.parameters())
        with torch.set_grad_enabled(torch.is_grad_enabled() and trained):
            features = self._feature_map(self._normalise(screens))
            if projector_kind(self.config.projector).pools:
                features = merged(features, self.config.visual_grid, self.config.visual_merge)
        return self.projector(features.flatten(2).transpose(1, 2))

    def _normalise(self, screens: torch.Tensor) -> torch.Tensor:
        # Cast first: in mixed precision on a CPU, normalising in float32 takes a tenth of a training step.
        kind, own = screens.device.type, seen_dtype(next(self.vision.parameters()))
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else own
        pixels = screens.to(dtype=dtype, memory_format=torch.channels_last)
        means, stds = self.config.image_mean, self.config.image_std
        factors = [1 / (255 * std) for std in stds], [-mean / std for mean, std in zip(means, stds, strict=True)]
        scale, shift = (to_device(values, screens.device, dtype).view(3, 1, 1) for values in factors)
        return pixels.mul_(scale).add_(shift)

    def _feature_map(self, pixels: torch.Tensor) -> torch.Tensor:
        """(N, channels, rows, columns) of any encoder; patch sequences are unfolded to a grid."""
        kind = self.config.vision_config.model_type
        options = {"interpolate_pos_encoding": True} if kind in _ASKED_TO_INTERPOLATE else {}
        hidden = self.vision(pixels, **options).last_hidden_state
        if hidden.dim() == 4:  # some of timm's encoders put the channels last
            return hidden if hidden.shape[1] == _feature_width(self.vision) else hidden.permute(0, 3, 1, 2)
        patch = _patch_size(self.vision)
        if any(side % patch for side in pixels.shape[-2:]):
            raise CheckpointError(
                f"model.screen_size {list(pixels.shape[-2:])}: {kind} would cut off a border; set multiples of {patch}"
            )
        rows, columns = pixels.shape[-2] // patch, pixels.shape[-1] // patch
        others = hidden.shape[1] - rows * columns  # class and register tokens, which come first
        if others < 0:
            raise CheckpointError(
                f"{kind} gives {hidden.shape[1]} tokens for {rows} x {columns} patches; use an encoder that keeps its "
                "patches, such as vit, dinov2, clip or siglip"
            )
        return hidden[:, others:].transpose(1, 2).unflatten(2, (rows, columns))

    def embed(
        self, input_ids: torch.Tensor, screens: torch.Tensor | None, screen_places: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Embeddings (B, L, hidden) with visual tokens inserted, and those tokens before positions (N, tokens, hidden).

        Screens fill the `SCREEN_TOKEN` positions in reading order of the batch. `screen_places`: those positions, int64
        (visual tokens,) of B * L; None: found here, where a GPU must be waited for. Raises ValueError when screens and
        positions do not match in number.
        """
        at = places(input_ids == SCREEN_TOKEN) if screen_places is None else screen_places
        embeddings = self._embed_words(input_ids)
        tokens = 0 if screens is None else len(screens) * self.config.tokens_per_screen
        if len(at) != tokens:
            raise ValueError(f"the sequence has places for {len(at)} visual tokens, the screens have {tokens}")
        if screens is None or not tokens:
            return embeddings, None
        seen, positioned = self.see(screens)
        return filled(embeddings, at, positioned.flatten(0, 1)), seen

    def embed_seen(self, input_ids: torch.Tensor, tokens: torch.Tensor, screen_places: torch.Tensor) -> torch.Tensor:
        """`embed` from cached visual tokens (N, tokens, hidden), positions added."""
        return filled(self._embed_words(input_ids), screen_places, tokens.flatten(0, 1))

    def _embed_words(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings (B, L, hidden), those of visual tokens to be replaced."""
        return self.get_input_embeddings()(input_ids.masked_fill(input_ids == SCREEN_TOKEN, 0))

    def forward(
        self,
        input_ids: torch.Tensor,
        screens: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        element_labels: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        cu_seqlens: np.ndarray | None = None,
        loss_weights: torch.Tensor | None = None,
        policy: Policy | None = None,
        screen_places: torch.Tensor | None = None,
        target_places: torch.Tensor | None = None,
        element_places: torch.Tensor | None = None,
        branches: np.ndarray | None = None,
    ) -> SupervisedOutput:
        """`input_ids` int64 (B, L) with `SCREEN_TOKEN`s; `screens` uint8 (N, 3, height, width); `labels` int64 (B, L).

        `labels[b, i]` is the target token at position i, unshifted, or `IGNORED`.
        With labels, logits exist only at supervised positions, flattened in reading order; without, at all positions.
        `loss_weights` float (B, L) weighs the loss of each token, all 1 by default. `num_items_in_batch`: the sum of
        the weights of all batches whose gradients are summed; the losses of these batches add up to the weighted mean.
        `cu_seqlens`: the bounds of the sentences that the row holds end to end; it, `branches`, `screen_places` and
        `target_places`: see `sentences/packing.py`; `element_places`: see `name_elements`. Without places, a GPU waits.
        """
        embeddings, seen = self.embed(input_ids, screens, screen_places)
        packed = packed_options(self.language_model, cu_seqlens, embeddings.device, branches=branches)
        decoded = self.language_model.model(
            inputs_embeds=embeddings,
            position_ids=self._positions(position_ids, input_ids, cu_seqlens),
            use_cache=False,
            **{"attention_mask": attention_mask} | packed,
        )
        hidden = decoded.last_hidden_state
        if labels is None:
            return SupervisedOutput(logits=self.logits(hidden))
        output = supervise(
            hidden, labels, self.logits, num_items_in_batch, loss_weights, places=target_places, policy=policy
        )
        if self.config.element_loss and self.training and element_labels is not None and seen is not None:
            element_loss = self.name_elements(seen, element_labels, element_places)
            output.loss = output.loss + self.config.element_loss * element_loss * output.share
            output.element_loss = element_loss.detach()
        return output

    def _positions(
        self, position_ids: torch.Tensor | None, input_ids: torch.Tensor, cu_seqlens: np.ndarray | None
    ) -> torch.Tensor | None:
        """In inference with dynamic NTK, a whole sentence is a prompt, as in the published forward pass."""
        if self.config.ntk_length is None or self.training:
            return position_ids
        length = input_ids.shape[1]
        own = torch.arange(length, device=input_ids.device)[None] if position_ids is None else position_ids
        lengths = [length] if cu_seqlens is None else np.diff(cu_seqlens).tolist()
        bases = np.repeat([first_position(self.config.ntk_length, length) for length in lengths], lengths)
        return own + to_device(torch.from_numpy(bases), input_ids.device)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.get_output_embeddings()(hidden * self.config.logit_scale)

    def name_elements(
        self, seen: torch.Tensor, element_labels: torch.Tensor, element_places: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Cross entropy of each visual token against the language model's own embeddings of words.

        `element_labels` int64 (N, tokens): the token id of the word or icon type under the visual token, `IGNORED`
        where none is certain. `element_places` int64 (labels,): where it is not, of N * tokens; None: found here. From
        random weights, this loss ties the image of a word to its embedding.
        """
        known = places(element_labels != IGNORED) if element_places is None else element_places
        if not len(known):
            return seen.sum() * 0
        table = self.get_input_embeddings().weight
        scale = 1 / ((self.config.visual_norm or 1.0) * math.sqrt(table.shape[-1]))
        logits = (seen.flatten(0, 1).index_select(0, known) @ table.t()).float() * scale
        return functional.cross_entropy(logits, element_labels.flatten()[known])


def _feature_width(vision: Any) -> int:
    if vision.config.model_type == _TIMM:
        return vision.timm_model.num_features
    sizes = getattr(vision.config, "hidden_sizes", None)
    return sizes[-1] if sizes else vision.config.hidden_size


def _patch_size(vision: Any) -> int:
    if vision.config.model_type == _TIMM:
        return vision.timm_model.patch_embed.patch_size[0]
    return vision.config.patch_size


_TIMM = "timm_wrapper"

_ASKED_TO_INTERPOLATE = {"vit", "clip_vision_model", "siglip_vision_model", "vit_mae", "deit"}
"""Encoders that interpolate their position table to other screen sizes only on request; DINOv2 always does."""


AutoConfig.register(LlamaViTConfig.model_type, LlamaViTConfig)
AutoModel.register(LlamaViTConfig, LlamaViT)
