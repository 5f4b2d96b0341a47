"""Which episodes are used: a fraction of a subset, the same ones whoever asks.

The paper trains on 10 % of google_apps and all of the rest. Membership hangs on the episode's id alone, so it does not
change with order, ranks, workers or what else is in the shards, and a larger fraction holds every smaller one: to
convert a tenth and to train on a tenth of it, by the same fraction, keeps the same episodes.
"""

import hashlib
from collections.abc import Mapping

from vlm_agent.datasets import DatasetError
from vlm_agent.episodes import SUBSETS


def check_mixture(fractions: Mapping[str, float]) -> None:
    """Raises DatasetError for a subset that does not exist or a share outside [0, 1]."""
    if unknown := set(fractions) - set(SUBSETS):
        raise DatasetError(f"the mixture names {', '.join(sorted(unknown))}; subsets are {', '.join(SUBSETS)}")
    for subset, share in fractions.items():
        if not 0 <= share <= 1:
            raise DatasetError(f"the mixture's share of {subset} is {share}; it must lie within 0 and 1")


def in_mixture(episode_id: str, subset: str, fractions: Mapping[str, float]) -> bool:
    """Whether the episode belongs to the `fractions` (subset → share in [0, 1]; 1 where not named)."""
    check_mixture(fractions)
    position = int.from_bytes(hashlib.sha256(episode_id.encode()).digest()[:8], "big")
    return position < fractions.get(subset, 1.0) * 2**64
