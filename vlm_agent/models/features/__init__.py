"""Frozen screen features: extractors, and the store of the features of all screens in a folder of shards.

An extractor turns a screen into T vectors of D numbers: `patches` (a vector for each place of the screen) or `pooled`
(T = 1). An attention from text to one pooled vector has a softmax over one element, which is always 1: every word then
receives the same vector, and nothing on the screen can be located. Patches need positions in them to be located: the
visual tokens of `phone_vlm_tiny` have positions added behind the projector, a vision transformer adds its own at its
input.

| extractor      | default checkpoint                | pooled                                     | patches            |
|----------------|-----------------------------------|--------------------------------------------|--------------------|
| blip2          | Salesforce/blip2-opt-2.7b         | class token, normalised again (1, 1408)    | (256, 1408)        |
| clip           | openai/clip-vit-base-patch32      | class token, normalised (1, 768)           | (49, 768)          |
| vit            | google/vit-base-patch16-224-in21k | class token (1, 768)                       | (196, 768)         |
| dinov2         | facebook/dinov2-small             | class token (1, 384)                       | (256, 384)         |
| phone_vlm_tiny | the embedded base                 | mean of the visual tokens (1, 192)         | (196, 192)         |

Each of the first four resizes screens as the checkpoint's preprocessor_config.json says; without that file, as the
published processor of its default checkpoint does. CLIP and DINOv2 crop the centre: with a phone's aspect ratio, more
than half of a screen is outside. A preprocessor_config.json with `"do_center_crop": false` and the size as height and
width shows them the whole screen.
"""

from pkgutil import resolve_name

import torch

from vlm_agent.errors import CheckpointError, RecipeError
from vlm_agent.models.features.extractor import Extractor, ExtractorKind
from vlm_agent.models.hub import check_files
from vlm_agent.recipe.model import FeatureSettings, Source

EXTRACTORS = {
    "blip2": "vlm_agent.models.features.towers:BLIP2",
    "clip": "vlm_agent.models.features.towers:CLIP",
    "vit": "vlm_agent.models.features.towers:VIT",
    "dinov2": "vlm_agent.models.features.towers:DINOV2",
    "phone_vlm_tiny": "vlm_agent.models.features.visual_tokens:PHONE_VLM_TINY",
}
"""Name → module:object of an `ExtractorKind`. A kind is imported at its first use."""


def extractor_kind(settings: FeatureSettings) -> ExtractorKind:
    """Raises RecipeError for a name that is not in the registry."""
    if settings.extractor not in EXTRACTORS:
        raise RecipeError(f"extractor {settings.extractor!r} is unknown; choose one of {', '.join(sorted(EXTRACTORS))}")
    return resolve_name(EXTRACTORS[settings.extractor])


def feature_shape(settings: FeatureSettings) -> tuple[int, int]:
    """(T, D): the number of vectors of a screen and the size of each, without reading weights.

    The default checkpoints need no files. Raises RecipeError for an unknown extractor, CheckpointError for a checkpoint
    whose configuration cannot be read or is of another model.
    """
    return extractor_kind(settings).shape(settings)


def check_extractor(settings: FeatureSettings) -> None:
    """Raises what `feature_shape` raises, and CheckpointError where the weights are missing (`hub.check_files`)."""
    feature_shape(settings)
    if (checkpoint := extractor_kind(settings).checkpoint(settings)) is not None:
        check_files(Source(checkpoint=checkpoint), f"extractor {settings.extractor}: checkpoint")


def load_extractor(
    settings: FeatureSettings, device: torch.device | None = None, precision: str = "float32"
) -> Extractor:
    """The extractor in evaluation mode on `device`, None for the CPU.

    `precision`: `float32`, or `bfloat16` for mixed precision. Raises RecipeError for an unknown extractor,
    CheckpointError for a checkpoint that cannot be loaded.
    """
    kind = extractor_kind(settings)
    return kind.load(settings, torch.device("cpu") if device is None else device, precision)


def load_trained_extractor(
    settings: FeatureSettings, digest: str, precision: str, device: torch.device | None = None
) -> Extractor:
    """The extractor that computed the features of a model's training. Raises CheckpointError for other weights, and
    what `load_extractor` raises."""
    extractor = load_extractor(settings, device, precision)
    if extractor.digest != digest:
        raise CheckpointError(
            f"the weights of {settings.extractor} ({settings.checkpoint or 'default'}) are not those that computed the "
            "features of this model's training; restore them"
        )
    return extractor


def extractor_digest(settings: FeatureSettings) -> str:
    """`Extractor.digest`, from the weights' files alone. Raises what `load_extractor` raises."""
    return extractor_kind(settings).digest(settings)
