"""Made-up pages that scroll."""

import numpy as np


def page_of_lines(width: int, rows: int, seed: int = 0) -> np.ndarray:
    """Lines of random words on white, blank rows between them, and no two alike: uint8 (rows, width, 3)."""
    rng = np.random.default_rng(seed)
    page = np.full((rows, width, 3), 245, np.uint8)
    for line in range(4, rows - 8, 14):
        words = rng.random((8, width)) < 0.5
        words[:, rng.integers(30, width) :] = False
        page[line : line + 8][words] = rng.integers(0, 160, 3)
    return page
