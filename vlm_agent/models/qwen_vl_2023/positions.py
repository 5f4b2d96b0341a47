"""Positions on a grid: fixed sinusoids, and tables fitted to another grid."""

import torch
from torch.nn import functional

_LONGEST = 10_000


def grid_sinusoids(rows: int, columns: int, width: int) -> torch.Tensor:
    """float32 (rows * columns, width): half of each vector is sin and cos of the column, half of the row, in patches.

    The column comes first. Raises ValueError for a width that does not divide by 4.
    """
    if width % 4:
        raise ValueError(f"a sine and a cosine of row and column need a width that divides by 4, not {width}")
    frequencies = _LONGEST ** -(torch.arange(width // 4) / (width // 4))
    row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    angles = [place.flatten()[:, None] * frequencies for place in (column, row)]
    return torch.cat([wave for angle in angles for wave in (angle.sin(), angle.cos())], dim=-1)


def fit_grid(table: torch.Tensor, source: tuple[int, int], target: tuple[int, int]) -> torch.Tensor:
    """A position table (rows * columns, width) on the grid `source`, interpolated to `target`; both (rows, columns).

    Bicubic and in float32, as the published model does it; the result has the table's dtype.
    """
    if source == target:
        return table
    map_ = table.float().unflatten(0, source).permute(2, 0, 1).unsqueeze(0)
    fitted = functional.interpolate(map_, target, mode="bicubic", align_corners=False)
    return fitted[0].permute(1, 2, 0).flatten(0, 1).to(table.dtype)
