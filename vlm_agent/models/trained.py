"""Where the parts of a trained model lie: in a finished run, or, while it goes on, in a run and one of its checkpoints.

RUN/recipe.yaml, RUN/tokenizer/, RUN/base/ (under an adapter on random weights), RUN/model/ once it is finished;
RUN/checkpoints/checkpoint-N/ holds what RUN/model/ would have held after N steps.
"""

from dataclasses import dataclass
from pathlib import Path

from vlm_agent.models.adapters import ADAPTER_WEIGHTS

MODEL_FOLDER = "model"
BASE_FOLDER = "base"
TOKENIZER_FOLDER = "tokenizer"
RECIPE_FILE = "recipe.yaml"
CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Trained:
    """`run` is the run's folder, `weights` that of the adapter or the whole model, `adapted` which of the two."""

    run: Path
    weights: Path
    adapted: bool

    @property
    def recipe(self) -> Path:
        return self.run / RECIPE_FILE

    @property
    def tokenizer(self) -> Path:
        return self.run / TOKENIZER_FOLDER

    @property
    def base(self) -> Path:
        return self.run / BASE_FOLDER

    @property
    def files(self) -> list[Path]:
        """Every file that decides what the model says, in one order."""
        weights = [path for path in self.weights.glob("*") if path.suffix in (".safetensors", ".json")]
        told = [path for path in weights if path.name.removesuffix(".index.json").endswith(_DECISIVE)]
        others = [path for part in (self.base, self.tokenizer) for path in part.rglob("*") if path.is_file()]
        return [self.recipe, *sorted(told), *sorted(others)]


_DECISIVE = (".safetensors", "config.json")
"""Endings of what a folder of weights holds of the model itself; a checkpoint holds the state of training beside it."""


def trained(path: Path) -> Trained:
    """The parts of the model that `path` means: a run's folder, or that of one of its checkpoints.

    Raises FileNotFoundError where there is no model.
    """
    is_checkpoint = path.parent.name == CHECKPOINTS
    run, weights = (path.parent.parent, path) if is_checkpoint else (path, path / MODEL_FOLDER)
    adapted = (weights / ADAPTER_WEIGHTS).is_file()
    if not adapted and not (weights / "config.json").is_file():
        raise FileNotFoundError(
            2, "no model: neither a finished run nor a run's checkpoint (RUN/checkpoints/checkpoint-N)", str(path)
        )
    return Trained(run, weights, adapted)
