"""Which episodes a run trains on: a fraction of a subset, the same ones whoever asks.

The paper trains on 10 % of google_apps and all of the rest. Membership hangs on the episode's id alone, so it does not
change with order, ranks, workers or what else is in the shards, and a larger fraction holds every smaller one.
"""

import hashlib

from vlm_agent.episodes import SUBSETS


def in_mixture(episode_id: str, subset: str, fractions: dict[str, float]) -> bool:
    """Whether the episode belongs to the `fractions` (subset → share in [0, 1]; 1 where not named)."""
    unknown = set(fractions) - set(SUBSETS)
    if unknown:
        raise ValueError(f"the mixture names {', '.join(sorted(unknown))}; subsets are {', '.join(SUBSETS)}")
    position = int.from_bytes(hashlib.sha256(episode_id.encode()).digest()[:8], "big") / 2**64
    return position < fractions.get(subset, 1.0)
