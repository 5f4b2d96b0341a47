"""The layout of a trained model on disk: a finished run, or a checkpoint of an unfinished one.

RUN/recipe.yaml, RUN/sources.json (what the base was read from), RUN/tokenizer/, RUN/base/ (of an adapter on random
weights), RUN/features.json (of an adapter on a model that reads screen features), RUN/references.parquet (of a run with
`data.references`), RUN/model/ once the run is finished;
RUN/checkpoints/checkpoint-N/ holds what RUN/model/ would hold after N steps.

Pretrained models that come with the package: a recipe says `base: phone_vlm_tiny` and nothing is downloaded.

Each is a run's folder without its training state: model/, tokenizer/, recipe.yaml, and README.md, its model card,
with the card's pictures.
"""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from vlm_agent.errors import CheckpointError
from vlm_agent.models.weights.adapters import ADAPTER_WEIGHTS

MODEL_FOLDER = "model"
BASE_FOLDER = "base"
TOKENIZER_FOLDER = "tokenizer"
RECIPE_FILE = "recipe.yaml"
FEATURES_FILE = "features.json"
REFERENCES_FILE = "references.parquet"
CARD = "README.md"
CHECKPOINTS = "checkpoints"
FINISHED = "run.json"


@dataclass(frozen=True)
class Trained:
    """`run`: the run folder. `weights`: the folder of an adapter, if `adapted`, else of a whole model."""

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
    def features(self) -> Path:
        """Beside an adapter, which saves no configuration: `features` of the configuration of its model."""
        return self.run / FEATURES_FILE

    @property
    def references(self) -> Path:
        """The demonstrations that the sentences of the run refer to (`data.references`)."""
        return self.run / REFERENCES_FILE

    @property
    def files(self) -> list[Path]:
        """Every file that the output of the model depends on, in a fixed order."""
        weights = [path for path in self.weights.glob("*") if path.suffix in (".safetensors", ".json")]
        decisive = [path for path in weights if path.name.removesuffix(".index.json").endswith(_DECISIVE)]
        others = [path for part in (self.base, self.tokenizer) for path in part.rglob("*") if path.is_file()]
        optional = [path for path in (self.features, self.references) if path.is_file()]
        return [self.recipe, *optional, *sorted(decisive), *sorted(others)]


_DECISIVE = (".safetensors", "config.json")
"""Name endings of the model's own files in a folder of weights; a checkpoint also holds training state."""


def trained(path: Path) -> Trained:
    """The model at `path`, a run folder or one of its checkpoints.

    Raises FileNotFoundError if `path` is neither.
    """
    is_checkpoint = path.parent.name == CHECKPOINTS
    run, weights = (path.parent.parent, path) if is_checkpoint else (path, path / MODEL_FOLDER)
    adapted = (weights / ADAPTER_WEIGHTS).is_file()
    if not adapted and not (weights / "config.json").is_file():
        raise FileNotFoundError(
            2, "no model: neither a finished run nor a run's checkpoint (RUN/checkpoints/checkpoint-N)", str(path)
        )
    return Trained(run, weights, adapted)


EMBEDDED = {"phone_vlm_tiny": "e84cf2ba5fe4f3fe388443d9c5892fcb684698353bfe5aa1475535b9666511cb"}
"""Name → sha256 of the weights that the model card and all published results refer to."""

WEIGHTS = "model.safetensors"


def base_folder(base: str) -> Path:
    """The folder of a recipe's `base`: the name of an embedded model, else the path of a run.

    Raises CheckpointError if the sha256 of an embedded model's weights differs, FileNotFoundError if the installation
    lacks them.
    """
    if base not in EMBEDDED:
        return Path(base)
    folder = Path(str(files("vlm_agent.models") / "bases" / base))
    found = hashlib.sha256((folder / MODEL_FOLDER / WEIGHTS).read_bytes()).hexdigest()
    if found != EMBEDDED[base]:
        raise CheckpointError(
            f"{folder / MODEL_FOLDER / WEIGHTS} is not the {base} of this version (sha256 {found[:12]}…, expected "
            f"{EMBEDDED[base][:12]}…): the installation is damaged; install vlm-agent again"
        )
    return folder
