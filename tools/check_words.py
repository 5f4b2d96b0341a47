"""Words that the style of this repository avoids, in docstrings, messages, identifiers and pages.

    python tools/check_words.py        # every finding in what is clean fails; counts of the rest are printed
    python tools/check_words.py --all  # every finding

Docstrings and messages are all string literals of `vlm_agent/`. The rules are in CONTRIBUTING.md under "Words".
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = ("told", "said", "had", "sought", "heard", "upon", "begun", "whoever", "nobody", "shall")
PHRASES = ("goes on", "of which", "there is no", "counts it not", "laid end to end")
IDENTIFIERS = frozenset((*WORDS, "given", "made"))
TEXT = re.compile(rf"\b(?:{'|'.join((*WORDS, *PHRASES))})\b", re.IGNORECASE)
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md")

ALLOWED = frozenset({"said", "tokens_said", "told", "sought"})
"""Whole strings that are keys of saved files or of earlier recipes, which must stay."""

NOT_CHECKED = re.compile(r"<!-- words: off -->.*?<!-- words: on -->|```.*?```|`[^`\n]*`", re.DOTALL)
"""In pages: code, and what quotes the words on purpose."""

NOT_YET_CLEAN = frozenset(
    [
        "vlm_agent/datasets/convert",  # a key of saved files
        "vlm_agent/datasets/sources",  # a key of saved files
        "vlm_agent/devices/simulated_phone/apps",  # letters of the simulated phone, whose pixels must stay
        "vlm_agent/devices/simulated_phone/goals",  # as above
    ]
)
"""Packages with findings that must stay, each with its reason."""


def of_python(path: Path) -> Iterator[tuple[int, str]]:
    """(line, finding) of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in ALLOWED:
            for found in TEXT.finditer(node.value):
                yield node.lineno + node.value.count("\n", 0, found.start()), found[0]
        for name in _names(node):
            for word in IDENTIFIERS.intersection(re.split(r"_|(?<=[a-z])(?=[A-Z])", name.lower())):
                yield getattr(node, "lineno", 0), f"{word} (in the identifier {name})"


def _names(node: ast.AST) -> Iterator[str]:
    """Names that a node defines; uses of a name are not counted again."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def of_page(path: Path) -> Iterator[tuple[int, str]]:
    text = NOT_CHECKED.sub(lambda found: "\n" * found[0].count("\n"), path.read_text(encoding="utf-8"))
    for found in TEXT.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[0]


def findings(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """(package or page, "file:line: word")."""
    for path in sorted((root / "vlm_agent").rglob("*.py")):
        place = path.relative_to(root).as_posix()
        unit = place if path.parent == root / "vlm_agent" else path.parent.relative_to(root).as_posix()
        yield from ((unit, f"{place}:{line}: {word}") for line, word in of_python(path))
    for page in sorted(page for pattern in PAGES for page in root.glob(pattern)):
        place = page.relative_to(root).as_posix()
        yield from ((place, f"{place}:{line}: {word}") for line, word in of_page(page))


def main(show_all: bool) -> int:
    found = list(findings())
    new = [line for unit, line in found if unit not in NOT_YET_CLEAN]
    for line in [line for _, line in found] if show_all else new:
        print(line, file=sys.stderr)
    for unit, count in sorted(Counter(unit for unit, _ in found if unit in NOT_YET_CLEAN).items()):
        print(f"{count:5} {unit}")
    if clean := sorted(NOT_YET_CLEAN - {unit for unit, _ in found}):
        print(f"Clean now; remove from NOT_YET_CLEAN: {', '.join(clean)}")
    if new:
        print(f"{len(new)} word(s) to avoid; see CONTRIBUTING.md, Words", file=sys.stderr)
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main("--all" in sys.argv[1:]))
