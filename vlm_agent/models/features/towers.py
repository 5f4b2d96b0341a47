"""Vision transformers of transformers, without the models around them: BLIP-2, CLIP, ViT, DINOv2."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from safetensors import safe_open
from transformers import Blip2VisionModel, CLIPVisionModel, Dinov2Model, PretrainedConfig, PreTrainedModel, ViTModel
from transformers.utils.hub import cached_file

from vlm_agent.errors import CheckpointError
from vlm_agent.files.weight_files import INDEX, WEIGHTS, check_file, weight_map
from vlm_agent.models.features import Extractor, digest_of
from vlm_agent.models.features.preprocessing import (
    BICUBIC,
    BILINEAR,
    CLIP_MEAN,
    CLIP_STD,
    IMAGENET_MEAN,
    IMAGENET_STD,
    PREPROCESSOR,
    PROCESSOR,
    Preprocessing,
    processor_content,
    read_preprocessing,
)
from vlm_agent.models.pretrained import explain_load_errors, load_configuration
from vlm_agent.recipe.model import FeatureSettings, WeightsSource


class CheckpointFiles:
    """The files of a checkpoint, a folder or a name on the hub. Only those that are used are downloaded.

    Methods raise CheckpointError for a file that is missing, damaged or cannot be downloaded.
    """

    def __init__(self, checkpoint: str) -> None:
        self._source = WeightsSource(checkpoint=checkpoint)
        self.name = checkpoint

    def configuration(self) -> PretrainedConfig:
        with explain_load_errors(self._source, "features", weights=False):
            return load_configuration(self.name, f"checkpoint {self.name!r}")

    def optional(self, name: str) -> Path | None:
        """A file, or None if the checkpoint does not have it."""
        with explain_load_errors(self._source, "features", weights=False):
            found = cached_file(self.name, name, _raise_exceptions_for_missing_entries=False)
        return None if found is None else Path(found)

    def tensors(self, prefixes: tuple[str, ...]) -> dict[str, torch.Tensor]:
        """The tensors of a part, named without the first of `prefixes` that any name has; all tensors if none has one.

        The dtypes are those of the files.
        """
        places = self._places()
        prefix = next((one for one in prefixes if any(name.startswith(one) for name in places)), "")
        wanted = {name: file for name, file in places.items() if name.startswith(prefix)}
        return {
            name.removeprefix(prefix): tensor
            for file in sorted(set(wanted.values()))
            for name, tensor in self._read(file, {name for name in wanted if wanted[name] == file})
        }

    def _places(self) -> dict[str, str]:
        """Name of each tensor → name of its file."""
        if (index := self.optional(INDEX)) is not None:
            return weight_map(index)
        if (path := self.optional(WEIGHTS)) is None:
            raise CheckpointError(
                f"checkpoint {self.name!r} has no {WEIGHTS}. Weights are read from safetensors only; "
                f"transformers converts .bin files: AutoModel.from_pretrained({self.name!r}).save_pretrained(FOLDER)"
            )
        with self._opened(path) as file:
            return dict.fromkeys(file.keys(), WEIGHTS)

    def _read(self, name: str, wanted: set[str]) -> Iterator[tuple[str, torch.Tensor]]:
        if (path := self.optional(name)) is None:
            raise CheckpointError(f"checkpoint {self.name!r} lacks {name}, which holds weights; download it again")
        with self._opened(path) as file:
            yield from ((key, file.get_tensor(key)) for key in sorted(wanted))

    @staticmethod
    def _opened(path: Path) -> Any:
        check_file(path)
        return safe_open(path, "pt")


@dataclass(frozen=True)
class Tower:
    """One class of vision transformer. Its first token is the class token, the others are patches in reading order.

    `prefixes`: of its tensors in checkpoints of larger models. `model_types`: of configurations that hold a tower.
    `published`: the default checkpoint, whose shape is known without its files: its sizes in pixels, and `width`, the
    numbers a patch. `has_pooler_output`: pooled features are the output of that name, else the class token's last
    hidden state. `interpolates`: it adapts its position table to other screen sizes only on request. `crops`: its
    published processor resizes the shortest edge and crops the centre. `resize`: that edge, where it is not the size of
    the crop.
    """

    model: type[PreTrainedModel]
    model_types: tuple[str, ...]
    prefixes: tuple[str, ...]
    published: str
    image_size: int
    patch_size: int
    width: int
    resample: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    crops: bool = False
    resize: int | None = None
    has_pooler_output: bool = True
    interpolates: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    def shape(self, settings: FeatureSettings) -> tuple[int, int]:
        return self._shape(settings, *self._read(settings))

    def digest(self, settings: FeatureSettings) -> str:
        return self._digest(settings, *self._read(settings, reads_files=True), self._tensors(settings))

    def load(self, settings: FeatureSettings, device: torch.device, precision: str) -> Extractor:
        config, preprocessing = self._read(settings, reads_files=True)
        tensors = self._tensors(settings)
        digest = self._digest(settings, config, preprocessing, tensors)
        model: Any = self._model(settings, config, tensors)
        model.to(device)
        moments = (preprocessing.mean, preprocessing.std)
        mean, std = (torch.tensor(values, device=device).view(3, 1, 1) for values in moments)

        def forward(screens: torch.Tensor) -> torch.Tensor:
            pixels = (screens.float() * preprocessing.rescale - mean) / std
            output = model(pixels, **({"interpolate_pos_encoding": True} if self.interpolates else {}))
            if settings.form == "patches":
                return output.last_hidden_state[:, 1:]
            pooled = output.pooler_output if self.has_pooler_output else output.last_hidden_state[:, 0]
            return pooled[:, None]

        shape = self._shape(settings, config, preprocessing)
        return Extractor(settings, digest, shape, preprocessing, forward, device, precision)

    def checkpoint(self, settings: FeatureSettings) -> str:
        return self.published if settings.checkpoint is None else settings.checkpoint

    def _read(self, settings: FeatureSettings, reads_files: bool = False) -> tuple[Any, Preprocessing]:
        """The tower's configuration and its preprocessing; of the default checkpoint, unless `reads_files`, its sizes
        alone."""
        if settings.checkpoint is None and not reads_files:
            sizes = {"image_size": self.image_size, "patch_size": self.patch_size, "hidden_size": self.width}
            return SimpleNamespace(**sizes), self._preprocessing(self.image_size)
        checkpoint = self.checkpoint(settings)
        files = CheckpointFiles(checkpoint)
        config = files.configuration()
        if config.model_type not in self.model_types:
            raise CheckpointError(
                f"checkpoint {checkpoint!r} is a {config.model_type}; extractor {settings.extractor} reads "
                f"{', '.join(self.model_types)}"
            )
        tower = getattr(config, "vision_config", config)
        content = processor_content(files.optional(PREPROCESSOR), files.optional(PROCESSOR))
        default = self._preprocessing(tower.image_size)
        return tower, read_preprocessing(content, default, f"{PREPROCESSOR} of {checkpoint}")

    def _preprocessing(self, image_size: int) -> Preprocessing:
        """The preprocessing of the published processors, at the size that the tower was trained with."""
        if not self.crops:
            return Preprocessing((image_size, image_size), None, self.resample, self.mean, self.std)
        edge, crop = (image_size, image_size) if self.resize is None else (self.resize, _CROP)
        return Preprocessing(edge, (crop, crop), self.resample, self.mean, self.std)

    def _shape(self, settings: FeatureSettings, config: Any, preprocessing: Preprocessing) -> tuple[int, int]:
        height, width = preprocessing.output
        if not isinstance(config.patch_size, int) or config.patch_size < 1:
            where = f"checkpoint {self.checkpoint(settings)!r}: config.json"
            raise CheckpointError(f"{where}: patch_size must be 1 or more pixels, not {config.patch_size!r}")
        patches = (height // config.patch_size) * (width // config.patch_size)
        return 1 if settings.form == "pooled" else patches, config.hidden_size

    def _tensors(self, settings: FeatureSettings) -> dict[str, torch.Tensor]:
        """Without those of the pooler, a layer that only pre-training used."""
        tensors = CheckpointFiles(self.checkpoint(settings)).tensors(self.prefixes)
        return {name: tensor for name, tensor in tensors.items() if not name.startswith("pooler.")}

    def _digest(
        self, settings: FeatureSettings, config: Any, preprocessing: Preprocessing, tensors: dict[str, torch.Tensor]
    ) -> str:
        about = {
            "extractor": settings.extractor,
            "form": settings.form,
            "preprocessing": asdict(preprocessing),
            "config": {key: getattr(config, key) for key in _DECISIVE if hasattr(config, key)},
        }
        return digest_of(tensors.items(), about)

    def _model(self, settings: FeatureSettings, config: Any, tensors: dict[str, torch.Tensor]) -> PreTrainedModel:
        loaded: Any = cast("Any", self.model).from_pretrained(
            None, config=config, state_dict=tensors, dtype=torch.float32, output_loading_info=True, **self.options
        )
        model, report = loaded
        if missing := sorted(report["missing_keys"]):
            raise CheckpointError(
                f"checkpoint {self.checkpoint(settings)!r} lacks {len(missing)} of the weights of "
                f"{self.model.__name__}, {missing[0]} first; it is incomplete, or of another model than its "
                "config.json says"
            )
        return model.eval().requires_grad_(False)


_CROP = 224
"""DINOv2's table of positions is of 518 pixels, its published processor crops 224."""

_DECISIVE = (
    *("hidden_act", "hidden_size", "image_size", "layer_norm_eps", "num_attention_heads", "num_hidden_layers"),
    *("patch_size", "use_swiglu_ffn"),
)
"""Keys of a configuration that affect features."""

BLIP2 = Tower(
    Blip2VisionModel,
    ("blip-2", "blip_2_vision_model"),
    ("vision_model.",),
    *("Salesforce/blip2-opt-2.7b", 224, 14, 1408),
    *(BICUBIC, CLIP_MEAN, CLIP_STD),
)
CLIP = Tower(
    CLIPVisionModel,
    ("clip", "clip_vision_model"),
    ("vision_model.",),
    *("openai/clip-vit-base-patch32", 224, 32, 768),
    *(BICUBIC, CLIP_MEAN, CLIP_STD),
    crops=True,
)
VIT = Tower(
    ViTModel,
    ("vit",),
    ("vit.",),
    *("google/vit-base-patch16-224-in21k", 224, 16, 768),
    *(BILINEAR, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    has_pooler_output=False,
    options={"add_pooling_layer": False},
)
DINOV2 = Tower(
    Dinov2Model,
    ("dinov2",),
    ("dinov2.",),
    *("facebook/dinov2-small", 518, 14, 384),
    *(BICUBIC, IMAGENET_MEAN, IMAGENET_STD),
    crops=True,
    resize=256,
    interpolates=False,
)
