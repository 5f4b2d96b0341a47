"""A folder to upload: the run folder without what belongs to this machine.

OUT/recipe.yaml and OUT/sources.json have the bases by their names on the hub, and every other absolute path as its last
name. The adapter in OUT/model/ names its base. OUT/run.json has the SHA-256 of these files. Weights are hard links
where the disk allows it. RUN stays as it is: resuming, evaluating and merging it need its paths.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from vlm_agent.errors import CheckpointError
from vlm_agent.files import atomic_folder, is_free, read_checked, write_checked
from vlm_agent.models.card.card import hub_names, with_published
from vlm_agent.models.card.usage import is_adapter, portable
from vlm_agent.models.hub import is_hub_name
from vlm_agent.models.run_layout import (
    ADAPTER_CONFIG,
    BASE_FOLDER,
    CARD,
    DIGESTS,
    FEATURES_FILE,
    FINISHED,
    MODEL_FOLDER,
    RECIPE_FILE,
    REFERENCES_FILE,
    TOKENIZER_FOLDER,
    trained,
)
from vlm_agent.models.weights.adapters import name_base
from vlm_agent.models.weights.origin import LEARNED_FILE, SOURCES_FILE, read_sources
from vlm_agent.recipe.run import Recipe

_FILES = (CARD, FEATURES_FILE, LEARNED_FILE, REFERENCES_FILE)
_FOLDERS = (MODEL_FOLDER, TOKENIZER_FOLDER, BASE_FOLDER)


def write_upload(run: Path, published: Mapping[str, str], output: Path) -> None:
    """Writes `output`. `published`: recipe key → name on the hub, of bases whose recipe has none.

    Raises CheckpointError where `output` holds something, and where an adapter lies on a folder of this machine that
    has no name on the hub.
    """
    recipe, sources = with_published(run, published), read_sources(run)
    names = hub_names(sources, recipe)
    if is_adapter(run):
        _check_named(run, recipe, names)
    if not is_free(output):
        raise CheckpointError(f"{output} holds something already; choose another output, or remove it")
    with atomic_folder(output) as folder:
        for path in chain((run / name for name in _FILES), *((run / part).rglob("*") for part in _FOLDERS)):
            if path.is_file():
                _place(path, folder / path.relative_to(run))
        content = yaml.safe_dump(_published(recipe, names), sort_keys=False, allow_unicode=True)
        (folder / RECIPE_FILE).write_text(content, encoding="utf-8")
        # Without a commit, a base that was a folder would be one for readers, too.
        found = {
            key: {"commit": ""} | source | {"checkpoint": names[key]} if key in names else source
            for key, source in sources.items()
        }
        write_checked(folder / SOURCES_FILE, portable(found))
        if (folder / MODEL_FOLDER / ADAPTER_CONFIG).is_file():
            name_base(folder / MODEL_FOLDER, names.get(recipe.model.origin) if len(recipe.model.sources) == 1 else None)
        finished = run / FINISHED  # a merged folder has none
        record = read_checked(finished, "restore it from a copy", dict[str, Any]) if finished.is_file() else {}
        write_checked(folder / FINISHED, portable(record) | {DIGESTS: trained(folder).digests})


def _check_named(run: Path, recipe: Recipe, names: Mapping[str, str]) -> None:
    for key, source in recipe.model.sources.items():
        if source.checkpoint is None or key in names:
            continue
        if Path(source.checkpoint).exists() or not is_hub_name(source.checkpoint):
            raise CheckpointError(
                f"the adapter of {run} lies on {source.checkpoint}, a folder of this machine, which others cannot "
                f"load: give the base's name on the hub, --model.{key}.published_as OWNER/NAME, or upload the "
                "output of vlm-agent merge"
            )
    if recipe.model.base is not None and Path(recipe.model.base).is_dir():
        raise CheckpointError(
            f"the adapter of {run} lies on the run {recipe.model.base}, which others cannot load: upload the "
            "output of vlm-agent merge"
        )


def _published(recipe: Recipe, names: Mapping[str, str]) -> Any:
    """The recipe as YAML values, without paths of this machine."""
    content = recipe.model_dump(mode="json")
    for key, source in recipe.model.sources.items():
        content["model"][key] |= {"published_as": None}
        if source.checkpoint is not None:
            content["model"][key] |= {"checkpoint": names.get(key, source.checkpoint)}
    return portable(content)


def _place(path: Path, target: Path) -> None:
    """Weights as a hard link; what a person may edit as a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        with suppress(OSError):  # another disk, or one without hard links
            os.link(path, target)
            return
    shutil.copyfile(path, target)
