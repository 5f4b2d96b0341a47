"""All mutations of a module: one small change each, such as `<` for `<=`.

A mutation replaces the text of one expression or statement and leaves the rest of the file as it is, comments included.
Texts, annotations, decorators, assertions and the arguments of raised errors are not mutated: tests do not pin wording.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}


@dataclass(frozen=True)
class Mutation:
    """One change of the file `path` (relative to the repository): `text` from offset `start` to `end`, in characters.

    `line`: where, from 1. `before`: what `text` replaces.
    """

    path: str
    line: int
    start: int
    end: int
    before: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.path}:{self.line}:{self.start}:{self.text}"

    @property
    def in_words(self) -> str:
        return f"{' '.join(self.before.split())} → {' '.join(self.text.split())}"

    def applied(self, source: str) -> str:
        """The mutated source. Raises ValueError if `source` is not the file that the mutation was made for."""
        if source[self.start : self.end] != self.before:
            raise ValueError(f"{self.path} has changed at line {self.line}")
        return source[: self.start] + self.text + source[self.end :]


def mutations(root: Path, path: str) -> list[Mutation]:
    """Every mutation of a file, in the order of the file; see `compiles`."""
    source = (root / path).read_text(encoding="utf-8")
    offsets = _Offsets(source)
    found = []
    for node, changed in _changes(ast.parse(source)):
        start, end = offsets.of(node)
        text = ast.unparse(changed) if changed is not None else "pass"
        text = f"({text})" if isinstance(node, ast.expr) and not isinstance(node, ast.Constant | ast.Name) else text
        found.append(Mutation(path, node.lineno, start, end, source[start:end], text))
    return sorted(set(found), key=lambda one: (one.start, one.end, one.text))


class _Offsets:
    """Places of nodes in characters: `ast` counts columns in bytes of UTF-8."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        if node.end_lineno is None or node.end_col_offset is None:
            raise ValueError("a parsed node has an end")
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def compiles(mutation: Mutation, source: str) -> bool:
    """Whether the mutated source is still Python. Slow beside `mutations`, so it is asked for chosen ones only."""
    try:
        compile(mutation.applied(source), mutation.path, "exec")
    except SyntaxError:
        return False
    return True


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST | None]]:
    """(node, its replacement) for each mutation; None removes a statement."""
    for node in _mutable(tree):
        for operator in _OPERATORS:
            changed = operator(node)
            if changed is not None:
                yield node, changed
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node, None


def _mutable(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    for name, value in ast.iter_fields(node):
        if name in (
            "annotation",
            "returns",
            "decorator_list",
            "type_params",
            "bases",
            "keywords" if isinstance(node, ast.ClassDef) else "",
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _mutable(child)


def _swapped_comparison(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Compare) or type(node.ops[0]) not in _SWAPS:
        return None
    changed = copy.deepcopy(node)
    changed.ops[0] = _SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    return changed


def _swapped_operator(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.BinOp | ast.BoolOp) or type(node.op) not in _SWAPS:
        return None
    if isinstance(node, ast.BinOp) and any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right)):
        return None
    changed = copy.deepcopy(node)
    changed.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
    return changed


def _without_not(node: ast.AST) -> ast.AST | None:
    return node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else None


def _other_constant(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Constant):
        return None
    if isinstance(node.value, bool):
        return ast.Constant(not node.value)
    if isinstance(node.value, int):
        return ast.Constant(node.value + 1)
    return ast.Constant(node.value * 2 + 0.01) if isinstance(node.value, float) else None


def _other_function(node: ast.AST) -> ast.AST | None:
    return ast.Name(_NAMES[node.id]) if isinstance(node, ast.Name) and node.id in _NAMES else None


def _always_false(node: ast.AST) -> ast.AST | None:
    """A condition of `x if condition else y` that never holds; statements are covered by other operators."""
    if not isinstance(node, ast.IfExp):
        return None
    return copy.deepcopy(node.orelse)


_OPERATORS: tuple[Callable[[ast.AST], ast.AST | None], ...] = (
    _swapped_comparison,
    _swapped_operator,
    _without_not,
    _other_constant,
    _other_function,
    _always_false,
)
