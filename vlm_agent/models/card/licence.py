"""The licence of a model: that of its bases, from the card beside each, where all have the same."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, try_to_load_from_cache

from vlm_agent.errors import CheckpointError
from vlm_agent.models.run_layout import CARD, base_folder

_ID = re.compile(r"[a-z0-9][a-z0-9.-]*")
_KEYS = ("license", "license_name", "license_link")


def licence_of_bases(sources: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The metadata of the licence; empty if a base states none, or two bases state different ones."""
    found = [_stated(_card_of(key, source["checkpoint"], source.get("commit"))) for key, source in sources.items()]
    return found[0] if found and all(one == found[0] for one in found) else {}


def checked_licence(name: str) -> str:
    """`name`, if it can be an identifier of the Hub. Raises CheckpointError for another text."""
    if not _ID.fullmatch(name):
        raise CheckpointError(f"{name!r} is no identifier of a licence on the Hub, such as apache-2.0, mit or other")
    return name


def _card_of(key: str, checkpoint: str, commit: str | None) -> Path | None:
    """The card of a base: in its folder, or in the hub's cache."""
    folder = base_folder(checkpoint) if key == "base" else Path(checkpoint)
    if commit is None:
        return folder / CARD
    try:
        cached = try_to_load_from_cache(checkpoint, CARD, revision=commit or None)
    except ValueError:  # no name of the hub
        return None
    return Path(cached) if isinstance(cached, str) else None


def _stated(card: Path | None) -> dict[str, str]:
    """{} for a card that states none, or cannot be read: it is a file of others, which may hold anything."""
    try:
        if card is None or not card.is_file():
            return {}
        data = ModelCard(card.read_text(encoding="utf-8"), ignore_metadata_errors=True).data.to_dict()
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    words = {key: data[key] for key in _KEYS if isinstance(data.get(key), str) and data[key].isprintable()}
    return words if _ID.fullmatch(words.get("license", "")) else {}
