"""The rows of a CSV, JSONL or Parquet file that another program wrote. Nothing in it is trusted.

Rows are numbered from 1, without the header. A cell of a CSV file that holds nothing is None; cells of columns with
numbers are converted, and stay text where they hold none, so that the check of a row names them.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.foreign.answers import COORDINATES, EPISODE, KNOWN, NUMBERS, Columns, shown
from vlm_agent.evaluation.predictions import is_predictions_file
from vlm_agent.files.parquet import open_parquet

_REMEDY = "write it again"
_ROWS_AT_ONCE = 4096
_DELIMITERS = ",;\t"
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_NUMBER_CHARACTERS = 64


class TableRow(NamedTuple):
    """`where`: for messages, as in `row 3 (line 4)`. `values`: by column."""

    where: str
    values: Mapping[str, object]


class Table(NamedTuple):
    """`rows` is read once."""

    columns: Columns
    rows: Iterator[TableRow]


def is_foreign(path: Path) -> bool:
    """Whether another program wrote the file: it is not a Parquet file, or one without the mark of our predictions.

    False if it does not exist, except for the names that other programs alone use. Raises DatasetError for a damaged
    file with the ending .parquet.
    """
    if path.suffix.lower() in (".csv", ".jsonl"):
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        is_parquet = path.suffix.lower() == ".parquet" or file.read(4) == b"PAR1"
    return not (is_parquet and is_predictions_file(path))


def read_table(path: Path) -> Table:
    """Raises DatasetError for a file without rows or with wrong columns; reading a row raises it naming the row."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(
            f"{path}: predictions of other programs are read from files with the ending {', '.join(_READERS)}"
        )
    if not path.is_file():
        raise DatasetError(f"{path} does not exist, or is no file")
    return reader(path)


def _csv_table(path: Path) -> Table:
    cells = _cells(path, _delimiter(path))
    header = next(cells, None)
    if header is None:
        raise DatasetError(f"{path} is empty; its first line names the columns")
    names = [name.strip() for name in header[1]]
    return Table(Columns.checked(path, names), _csv_rows(path, names, cells))


def _csv_rows(path: Path, names: Sequence[str], cells: Iterator[tuple[int, list[str]]]) -> Iterator[TableRow]:
    for number, (line, values) in enumerate(cells, start=1):
        where = f"row {number} (line {line})"
        if len(values) != len(names):
            raise DatasetError(f"{path}, {where} has {len(values)} cells, the header has {len(names)}")
        yield TableRow(
            where, {name: _cell(name, value) for name, value in zip(names, values, strict=True) if name in KNOWN}
        )


def _cell(column: str, text: str) -> object:
    if text == "":
        return None
    if column in COORDINATES:
        return _point(text)
    return _number(text) if column in NUMBERS else text


def _number(text: str) -> object:
    """`3`, `3.0` and ` 0.5 ` are numbers; `1_0`, which Python reads too, is none."""
    plain = text.strip()
    if _WHOLE.fullmatch(plain):
        return int(plain)
    if len(plain) > _NUMBER_CHARACTERS or "_" in plain or not plain.isascii():
        return text
    try:
        return float(plain)
    except ValueError:
        return text


def _point(text: str) -> object:
    """`[0.5, 0.25]`, and how pandas writes tuples and arrays: `(0.5, 0.25)`, `[0.5  0.25]`."""
    plain = text.strip()
    if len(plain) > 4 * _NUMBER_CHARACTERS or plain[:1] not in "[(" or plain[-1:] not in "])":
        return text
    return [_number(part) for part in plain[1:-1].replace(",", " ").split()]


def _delimiter(path: Path) -> str:
    """The first of `_DELIMITERS` by which the header has the column episode_id; spreadsheets of many countries write
    semicolons."""
    for delimiter in _DELIMITERS:
        # Not strict: with a wrong delimiter, quotation marks are in wrong places.
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file, suppress(csv.Error):
            header = next(csv.reader(file, delimiter=delimiter), [])
            if len(header) > 1 and EPISODE in [name.strip() for name in header]:
                return delimiter
    return _DELIMITERS[0]


def _cells(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The line where each record begins, and its cells; empty lines are skipped."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader, line = csv.reader(file, delimiter=delimiter, strict=True), 1
        try:
            for values in reader:
                if values:
                    yield line, values
                line = reader.line_num + 1
        except csv.Error as error:
            raise DatasetError(
                f"{path}, the record that begins in line {line}: {error}; is a quotation mark missing?"
            ) from None
        except UnicodeDecodeError as error:
            raise DatasetError(_not_utf_8(path, line, error)) from None


def _jsonl_table(path: Path) -> Table:
    """Reads the file twice: a row may lack a key that only later ones have."""
    columns = Columns(path)
    for row in _jsonl_rows(path):
        columns.add(row.values)
    columns.check()
    return Table(columns, _jsonl_rows(path))


def _jsonl_rows(path: Path) -> Iterator[TableRow]:
    for number, (line, text) in enumerate(_lines(path), start=1):
        where = f"row {number} (line {line})"
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{path}, {where} is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise DatasetError(f"{path}, {where} is {shown(values)}, expected a JSON object")
        yield TableRow(where, values)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        try:
            for number, text in enumerate(file, start=1):
                if not text.isspace():
                    yield number, text
        except UnicodeDecodeError as error:
            raise DatasetError(_not_utf_8(path, number + 1, error)) from None


def _not_utf_8(path: Path, line: int, error: UnicodeDecodeError) -> str:
    return f"{path} is not UTF-8 from about line {line} on ({error.reason}); write it as UTF-8"


def _parquet_table(path: Path) -> Table:
    with open_parquet(path, _REMEDY) as file:
        columns = Columns.checked(path, file.schema.names)
    return Table(columns, _parquet_rows(path, columns))


def _parquet_rows(path: Path, columns: Columns) -> Iterator[TableRow]:
    numbers = count(1)
    with open_parquet(path, _REMEDY) as file:
        for batch in file.batches(_ROWS_AT_ONCE, columns.known):
            try:
                rows: list[dict[str, object]] = batch.to_pylist()
            except (ValueError, OverflowError) as error:  # bytes that are no UTF-8, a date beyond Python's
                raise DatasetError(f"{path} holds a value that cannot be read ({error}); {_REMEDY}") from None
            yield from (TableRow(f"row {next(numbers)}", values) for values in rows)


_READERS: dict[str, Callable[[Path], Table]] = {".csv": _csv_table, ".jsonl": _jsonl_table, ".parquet": _parquet_table}
