"""`none`: no icon has a meaning. For screens whose texts are enough, and as the baseline of the other readers."""

from collections.abc import Sequence

import numpy as np

from vlm_agent.screens.seen import IconReader, Meaning


class NoIcons(IconReader):
    def read(self, crops: Sequence[np.ndarray]) -> list[tuple[Meaning, ...]]:
        return [() for _ in crops]
