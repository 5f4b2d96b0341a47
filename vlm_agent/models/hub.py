"""Names of checkpoints on huggingface.co: the connection that they need, and the files in the cache."""

from functools import cache
from pathlib import Path

import httpx2  # the HTTP library of huggingface_hub
from huggingface_hub import constants, get_session, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from vlm_agent.errors import CheckpointError
from vlm_agent.files.weight_files import INDEX, WEIGHTS, weight_map
from vlm_agent.models.proxies import usable_proxy
from vlm_agent.recipe.model import WeightsSource

CONFIG = "config.json"
_SECONDS = 5.0


def settle_connection(source: WeightsSource) -> None:
    """For a source that is a name and not a path: if the hub cannot be reached, only its cache is read from then on.

    huggingface_hub repeats a request without a connection for half a minute, with two lines for each attempt. A server
    that answers anything is reachable, and its errors are repeated as before. Raises ProxyError.
    """
    is_name = source.config is None and not Path(source.location).exists()
    if is_name and not constants.is_offline_mode() and not _is_reachable():
        constants.HF_HUB_OFFLINE = True


def check_files(source: WeightsSource, key: str) -> None:
    """Raises CheckpointError if configuration or weights of a checkpoint are not in its folder or, without a connection
    to the hub, in the cache. `key`: the recipe's key of it. No weights are read."""
    if source.checkpoint is None:
        return
    name, is_folder = f"{key} {source.location!r}", Path(source.location).is_dir()
    if not is_folder and not is_hub_name(source.location):
        raise CheckpointError(f"{name}: no such folder exists; correct the path, or give a name on huggingface.co")
    if not is_folder and not constants.is_offline_mode():
        return
    if (missing := _missing_file(source)) is None:
        return
    if is_folder:
        raise CheckpointError(f"{name} has no {missing}; copy all of the checkpoint (safetensors or GGUF) there")
    revision = "" if source.revision is None else f" --revision {source.revision}"
    raise CheckpointError(
        f"{name}: no such folder exists, and {missing} is not in {constants.HF_HUB_CACHE}, the cache that is read "
        f"without a connection; correct the path, or download it where there is one: HF_HOME={constants.HF_HOME} hf "
        f"download {source.location}{revision}"
    )


def is_hub_name(location: str) -> bool:
    """Whether the hub could have a checkpoint of this name."""
    try:
        validate_repo_id(location)
    except HFValidationError:
        return False
    return True


def _missing_file(source: WeightsSource) -> str | None:
    wanted = [WEIGHTS] if source.gguf_file is None else [source.gguf_file]
    if source.gguf_file is None:
        if _file_of(source, CONFIG) is None:
            return CONFIG
        if (index := _file_of(source, INDEX)) is not None:
            wanted = sorted(set(weight_map(index).values()))
    return next((name for name in wanted if _file_of(source, name) is None), None)


def _file_of(source: WeightsSource, name: str) -> Path | None:
    if (folder := Path(source.location)).is_dir():
        return folder / name if (folder / name).is_file() else None
    return cached_path(source.location, name, source.revision)


def cached_path(name: str, file: str, revision: str | None) -> Path | None:
    """A file of a `name` on the hub, in the cache. None if it is not there, or if the hub could not have this name."""
    try:
        found = try_to_load_from_cache(name, file, revision=revision)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


@cache
def _is_reachable() -> bool:
    """One request a process."""
    with usable_proxy(constants.ENDPOINT):
        session = get_session()
    try:
        session.head(constants.ENDPOINT, timeout=_SECONDS)
    except httpx2.TransportError:
        return False
    return True
