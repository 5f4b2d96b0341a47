"""Groups of episodes that are scored apart from the subsets."""

import json
from pathlib import Path

from vlm_agent.datasets import DatasetError


def read_groups(path: Path | None) -> dict[str, list[str]]:
    """Groups of episodes, JSON: name → episode ids; none where `path` is None.

    Raises DatasetError naming the file where it is something else.
    """
    if path is None:
        return {}
    try:
        groups = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DatasetError(f"{path} is no JSON: {error}") from None
    if not isinstance(groups, dict) or not all(isinstance(ids, list) for ids in groups.values()):
        raise DatasetError(f"{path} must map each group's name to a list of episode ids")
    return groups
