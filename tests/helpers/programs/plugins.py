"""A package with entry points on `sys.path`, as an installer leaves it."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    points: Mapping[str, Mapping[str, str]],
    package: str = "toys",
    **modules: str,
) -> None:
    """Writes `modules` (name → code) and the metadata of `package` with entry points: group → name → value. Everything
    is undone with `monkeypatch`."""
    metadata = folder / f"{package}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in of.items()) for group, of in points.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
        monkeypatch.setitem(sys.modules, name, None)  # so that its import is undone
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(folder))
