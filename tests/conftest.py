"""Fixtures for every test."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real data that lies beside the checkout on development machines; its tests skip, by name, where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"real data is not at {folder}")
    return folder
