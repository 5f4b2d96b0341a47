"""Which test files can notice a mutation of a module: first those that mirror it, then all that import or run it."""

import re
from pathlib import Path


def mirrored(root: Path, path: str) -> list[str]:
    """The test files beside the module's place in `tests/`: named after it, or, without one, of the nearest folder.

    `path`: of the module, such as `vlm_agent/sentences/packing.py`. Returns sorted paths relative to `root`.
    """
    module = Path(path).relative_to("vlm_agent").with_suffix("")
    for name, folder in (
        (module.name, module.parent),
        (module.parent.name, module.parent),
        (module.parent.name, module.parent.parent),
    ):
        found = sorted((root / "tests" / folder).glob(f"test_{name}*.py")) if name else []
        if found:
            return [file.relative_to(root).as_posix() for file in found]
    folder = root / "tests" / module.parent
    while not (found := sorted(folder.glob("test_*.py"))) and folder != root / "tests":
        folder = folder.parent
    return [file.relative_to(root).as_posix() for file in found]


def importing(root: Path, path: str) -> list[str]:
    """All test files that import the module itself, or a name that its package exports from it; those of the folder
    that mirrors its package; for a module of a command, in place of these, those that run the command."""
    dotted = Path(path).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    package, _, name = dotted.rpartition(".")
    forms = (
        rf"from {re.escape(dotted)} import",
        rf"import {re.escape(dotted)}\b",
        rf"from {re.escape(package)} import .*\b{name}\b",
    )
    direct = re.compile(rf"^(?:{'|'.join(forms)})", re.M)
    package_import = re.compile(rf"^from {re.escape(package)} import", re.M)
    words = rf'"{name.replace("_", "-")}"'
    command = re.compile(rf"\[\s*{words}|{words}: \[" if package == "vlm_agent.cli" else r"(?!)")
    folder = Path(path).parent.relative_to("vlm_agent").as_posix()
    beside = None if folder in (".", "cli") else root / "tests" / folder
    exported = f"from {dotted} import" in _text(root / package.replace(".", "/") / "__init__.py")
    found = []
    for file in sorted((root / "tests").rglob("test_*.py")):
        text = _text(file)
        imports = direct.search(text) or (exported and package_import.search(text))
        if imports or file.parent == beside or command.search(text):
            found.append(file.relative_to(root).as_posix())
    return found


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""
