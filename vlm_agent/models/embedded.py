"""Pretrained models that come with the package: a recipe says `base: phone_vlm_tiny` and nothing is downloaded.

Each is a run's folder without its training state: model/, tokenizer/, recipe.yaml, and README.md, its model card,
with the card's pictures.
"""

import hashlib
from importlib.resources import files
from pathlib import Path

from vlm_agent.models.trained import MODEL_FOLDER

EMBEDDED = {"phone_vlm_tiny": "e84cf2ba5fe4f3fe388443d9c5892fcb684698353bfe5aa1475535b9666511cb"}
"""Name → sha256 of its weights: what its card and every result that names it speak of."""

WEIGHTS = "model.safetensors"


def base_folder(base: str) -> Path:
    """Where the model lies that a recipe calls `base`: an embedded one by its name, else the path of a run.

    Raises ValueError where an embedded model's weights are not those it is known by, FileNotFoundError where the
    installation has none.
    """
    if base not in EMBEDDED:
        return Path(base)
    folder = Path(str(files("vlm_agent.models") / "bases" / base))
    found = hashlib.sha256((folder / MODEL_FOLDER / WEIGHTS).read_bytes()).hexdigest()
    if found != EMBEDDED[base]:
        raise ValueError(
            f"{folder / MODEL_FOLDER / WEIGHTS} is not the {base} of this version (sha256 {found[:12]}…, expected "
            f"{EMBEDDED[base][:12]}…): the installation is damaged; install vlm-agent again"
        )
    return folder
