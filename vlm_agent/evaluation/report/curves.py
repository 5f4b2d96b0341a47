"""Accuracy by step or by episode length, as coordinates of an SVG."""

from collections.abc import Mapping, Sequence

_PLOT = {"width": 640, "height": 220, "left": 40, "right": 120, "top": 12, "bottom": 34}
_LABEL_HEIGHT = 12


def curve(rows: Sequence[Mapping], label: str, counted: str, scorers: Sequence[str]) -> dict:
    """A line for each of `scorers`, the percent of right steps, over bars of the counts.

    `rows` are `by_step` or `by_length` of `metrics.score`, in order of the horizontal axis. `label` is the key of the
    horizontal axis, `counted` the key of the counts.
    """
    inner_width = _PLOT["width"] - _PLOT["left"] - _PLOT["right"]
    base = _PLOT["height"] - _PLOT["bottom"]
    inner_height = base - _PLOT["top"]
    slot = inner_width / max(1, len(rows))
    most = max((row[counted] for row in rows), default=1)

    def y(share: float) -> float:
        return round(base - share / 100 * inner_height, 1)

    centres = [round(_PLOT["left"] + (index + 0.5) * slot, 1) for index in range(len(rows))]
    at = list(zip(centres, rows, strict=True))
    lines = {scorer: [(x, y(row[scorer]), row) for x, row in at] for scorer in scorers}
    return {
        **_PLOT,
        "base": base,
        "label": label,
        "counted": counted,
        "most": most if rows else 0,
        "grid": [(share, y(share)) for share in (0, 25, 50, 75, 100)],
        "bars": [(round(x - slot * 0.35, 1), round(slot * 0.7, 1), y(100 * row[counted] / most), row) for x, row in at],
        "ticks": [(x, row) for x, row in at][:: max(1, round(28 / slot))],
        "lines": lines,
        "names": _label_positions({scorer: points[-1][1] for scorer, points in lines.items() if points}),
    }


def _label_positions(heights: Mapping[str, float]) -> dict[str, float]:
    """Label positions from top to bottom, moved down where two labels would overlap."""
    positions: dict[str, float] = {}
    last = float("-inf")
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        last = max(height, last + _LABEL_HEIGHT)
        positions[name] = round(last, 1)
    return positions
