"""The connection to huggingface.co, which names of checkpoints need."""

from functools import cache
from pathlib import Path

import httpx2  # the HTTP library of huggingface_hub
from huggingface_hub import constants, get_session

from vlm_agent.models.proxies import usable_proxy
from vlm_agent.recipe.model import Source

_SECONDS = 5.0


def settle_connection(source: Source) -> None:
    """For a source that is a name and not a path: if the hub cannot be reached, only its cache is read from then on.

    huggingface_hub repeats a request without a connection for half a minute, with two lines for each attempt. A server
    that answers anything is reachable, and its errors are repeated as before. Raises ProxyError.
    """
    is_name = source.config is None and not Path(source.location).exists()
    if is_name and not constants.is_offline_mode() and not _is_reachable():
        constants.HF_HUB_OFFLINE = True


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
