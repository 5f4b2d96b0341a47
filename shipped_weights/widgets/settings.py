"""The settings of a training of `phone_widgets_tiny`: `shipped_weights/widgets/*.yaml`."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from shipped_weights.loop import LoopSettings
from vlm_agent.errors import RecipeError
from vlm_agent.recipe.yaml_file import read_mapping, validated


class WidgetTraining(LoopSettings):
    """`start`: weights (safetensors) to continue from; None for random ones.

    `side`: pixels along the shorter side of a screen in use. `sides`: those of training, one of them for each step.
    `first_sample`: number of the first sample in the stream, so that a second run sees other ones.
    """

    start: str | None = None
    batch_size: Annotated[int, Field(ge=2)] = 8
    first_sample: Annotated[int, Field(ge=0)] = 0
    side: Annotated[int, Field(ge=32)] = 320
    sides: Annotated[tuple[int, ...], Field(min_length=1)] = (256, 288, 320, 352, 384)
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    warmup_steps: Annotated[int, Field(ge=0)] = 50
    decay_steps: Annotated[int, Field(ge=1)] | None = 800
    max_grad_norm: Annotated[float, Field(gt=0)] = 10.0
    box_weight: Annotated[float, Field(ge=0)] = 1.0
    state_weight: Annotated[float, Field(ge=0)] = 0.2
    save_steps: Annotated[int, Field(ge=1)] = 200


def read_settings(path: Path, changes: dict[str, object] | None = None) -> WidgetTraining:
    """The settings in a YAML file, with `changes` of single keys. Raises RecipeError with file and key."""
    return validated(WidgetTraining, {**read_mapping(path, RecipeError), **(changes or {})}, str(path), RecipeError)
