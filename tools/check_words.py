"""Words that the style of this repository avoids, in docstrings, messages, identifiers and pages.

    python tools/check_words.py        # fails on every finding that is not kept on purpose
    python tools/check_words.py --all  # every finding

Docstrings and messages are all string literals of `vlm_agent/`. In all of CODE a docstring that begins with "Of",
"Those", "That of" or "As" is found: its noun is missing. The rules are in CONTRIBUTING.md under "Words".
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = ("told", "said", "had", "sought", "heard", "upon", "begun", "whoever", "nobody", "shall")
PHRASES = ("goes on", "of which", "there is no", "counts it not", "laid end to end", "from 1 up", "is due", "set aside")
IDENTIFIERS = frozenset((*WORDS, "given", "made"))
TEXT = re.compile(rf"\b(?:{'|'.join((*WORDS, *PHRASES))})\b", re.IGNORECASE)
HEADLESS = re.compile(r"(?:Of|Those|That of|As)\b")
CODE = ("vlm_agent", "shipped_weights", "benchmarks", "studies", "tests", "tools")
PAGES = ("README.md", "CONTRIBUTING.md", "slurm/README.md", "docs/*.md")

ALLOWED = frozenset({"had", "said", "told", "sought"})
"""Whole strings that are keys of saved files or of earlier recipes, which must stay."""

NOT_CHECKED = re.compile(r"<!-- words: off -->.*?<!-- words: on -->|```.*?```|`[^`\n]*`", re.DOTALL)
"""In pages: code, and what quotes the words on purpose."""

KEPT = {
    "vlm_agent/datasets/sources/traces.py": 2,  # a key of saved files
    "vlm_agent/simulator/apps/mail.py": 1,  # letters of the simulated phone, whose pixels must stay
    "vlm_agent/simulator/goals/people.py": 1,  # as above
}
"""The number of findings that must stay, by file, each with its reason."""


def of_python(path: Path) -> Iterator[tuple[int, str]]:
    """(line, finding) of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in ALLOWED:
            for found in TEXT.finditer(node.value):
                yield node.lineno + node.value.count("\n", 0, found.start()), found[0]
        for name in _names(node):
            for word in IDENTIFIERS.intersection(re.split(r"_|(?<=[a-z])(?=[A-Z])", name.lower())):
                yield getattr(node, "lineno", 0), f"{word} (in the identifier {name})"


def headless(path: Path) -> Iterator[tuple[int, str]]:
    """(line, finding) of each docstring, also below a constant, that begins without its noun."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if found := HEADLESS.match(text):
                yield node.lineno, f"{found[0]} (begins a docstring; name the noun)"


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
    """(file, "file:line: word")."""
    for path in sorted((root / "vlm_agent").rglob("*.py")):
        place = path.relative_to(root).as_posix()
        yield from ((place, f"{place}:{line}: {word}") for line, word in of_python(path))
    for path in sorted(path for folder in CODE for path in (root / folder).rglob("*.py")):
        place = path.relative_to(root).as_posix()
        yield from ((place, f"{place}:{line}: {finding}") for line, finding in headless(path))
    for page in sorted(page for pattern in PAGES for page in root.glob(pattern)):
        place = page.relative_to(root).as_posix()
        yield from ((place, f"{place}:{line}: {word}") for line, word in of_page(page))


def main(show_all: bool) -> int:
    found = list(findings())
    counts = Counter(place for place, _ in found)
    new = [line for place, line in found if counts[place] > KEPT.get(place, 0)]
    for line in [line for _, line in found] if show_all else new:
        print(line, file=sys.stderr)
    fewer = [place for place, count in KEPT.items() if counts[place] < count]
    if fewer:
        print(f"fewer findings than KEPT allows, lower its numbers: {', '.join(fewer)}", file=sys.stderr)
    if new:
        print(f"{len(new)} word(s) to avoid; see CONTRIBUTING.md, Words", file=sys.stderr)
    return 1 if new or fewer else 0


if __name__ == "__main__":
    sys.exit(main("--all" in sys.argv[1:]))
