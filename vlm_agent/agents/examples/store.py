"""The file of demonstrations: SQLite with one table, marked by an application id and a schema version.

A change is one transaction: a process that is killed leaves the file as before or as after it, whatever journal lies
beside it. Removed texts are overwritten in the file. Card numbers, and texts typed into fields whose name is that of a
secret, are masked (`texts/secrets.py`).
"""

import hashlib
import json
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np

from vlm_agent.agents.examples.encoder import Encoder
from vlm_agent.errors import UserError
from vlm_agent.texts.secrets import Secrets, mask_cards, names_secret

VERSION = 2
APPLICATION_ID = 0x564C4D44
"""The bytes `VLMD`, so that another program's SQLite file is recognised."""

LONGEST_GOAL, LONGEST_LINE, MOST_LINES = 1000, 500, 200
"""The limits of a demonstration, in characters and lines. It is meant for a prompt."""

_QUOTE = "['\"\N{LEFT SINGLE QUOTATION MARK}-\N{DOUBLE LOW-9 QUOTATION MARK}]"
_TYPED = (
    re.compile(rf"type {_QUOTE}(?P<text>.*){_QUOTE} into (?P<field>.*)"),
    re.compile(rf"在(?P<field>.*)输入{_QUOTE}(?P<text>.*){_QUOTE}(?:并回车)?"),
)
"""Lines that type a text into a field: those of `record`, and those of the published table (`published.py`)."""

_WAIT_SECONDS = 10.0
_DECIMALS = 5
_TABLE = """
CREATE TABLE demonstrations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    goal TEXT NOT NULL,
    app TEXT NOT NULL,
    lines TEXT NOT NULL,
    recorded INTEGER NOT NULL,
    checksum TEXT NOT NULL
)"""
_ROWS = "SELECT number, goal, app, lines, recorded, checksum FROM demonstrations"
_ALL, _SAME = f"{_ROWS} ORDER BY number", f"{_ROWS} WHERE goal = ? AND app = ? AND lines = ?"
_INSERT = "INSERT INTO demonstrations (goal, app, lines, recorded, checksum) VALUES (?, ?, ?, ?, '')"
_SEAL = "UPDATE demonstrations SET checksum = ? WHERE number = ?"


class DemonstrationsError(UserError):
    """A store of demonstrations that cannot be used; the message names file and remedy."""


@dataclass(frozen=True)
class Demonstration:
    """What a person did for a goal. `lines`: one action in words each. `recorded`: seconds since the epoch."""

    number: int
    goal: str
    app: str
    lines: tuple[str, ...]
    recorded: int


class Demonstrations:
    """The store at `path`. It is created by the first `add`; until then it is empty. Thread-safe.

    Every method raises DemonstrationsError if the file is damaged, of another version, or another kind of file.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = Lock()
        self._vectors: tuple[Encoder, tuple[str, ...], np.ndarray] | None = None

    def add(self, goal: str, app: str, lines: Sequence[str]) -> Demonstration:
        """Adds a demonstration. The same one (goal, app and lines) is not added twice; the earlier one is returned.

        Raises DemonstrationsError for an empty goal, no line, or a text that is too long.
        """
        return self.add_all([(goal, app, lines)])[0]

    def add_all(self, demonstrations: Sequence[tuple[str, str, Sequence[str]]]) -> list[Demonstration]:
        """Adds (goal, app, lines) of each as `add` does: all of them, or after an error none."""
        try:
            accepted = [checked(*one) for one in demonstrations]
        except ValueError as error:
            raise DemonstrationsError(f"the demonstration is not added to {self.path}: {error}") from None
        if not accepted:
            return []
        with self._writing() as connection:
            return [self._insert(connection, *one) for one in accepted]

    def _insert(self, connection: sqlite3.Connection, goal: str, app: str, lines: tuple[str, ...]) -> Demonstration:
        same = connection.execute(_SAME, (goal, app, _json(lines))).fetchone()
        if same is not None:
            return self._demonstration(same)
        now = int(time.time())
        cursor = connection.execute(_INSERT, (goal, app, _json(lines), now))
        number = int(cursor.lastrowid or 0)
        connection.execute(_SEAL, (_checksum(number, goal, app, _json(lines), now), number))
        return Demonstration(number, goal, app, lines, now)

    def all(self) -> tuple[Demonstration, ...]:
        """In the order in which they were added."""
        if not self.path.exists():
            return ()
        with self._opened() as connection:
            if _is_new(connection):
                return ()
            rows = connection.execute(_ALL).fetchall()
        return tuple(map(self._demonstration, rows))

    def get(self, number: int) -> Demonstration:
        """Raises DemonstrationsError for an unknown number."""
        found = {one.number: one for one in self.all()}
        if number in found:
            return found[number]
        others = f"it has {', '.join(map(str, found))}" if found else "it is empty"
        raise DemonstrationsError(f"{self.path} has no demonstration {number}; {others}")

    def remove(self, number: int) -> Demonstration:
        """Removes a demonstration and returns it. Raises DemonstrationsError for an unknown number."""
        found = self.get(number)
        with self._writing() as connection:
            connection.execute("DELETE FROM demonstrations WHERE number = ?", (number,))
        return found

    def nearest(self, goal: str, encoder: Encoder) -> Demonstration | None:
        """The demonstration whose goal is nearest to `goal`; of equally near ones the last recorded.

        None if the store is empty.
        """
        ranked = self.ranked(goal, encoder)
        return ranked[0][1] if ranked else None

    def ranked(self, goal: str, encoder: Encoder) -> list[tuple[float, Demonstration]]:
        """(cosine similarity of the goals, demonstration), from the nearest on."""
        found = self.all()
        if not found:
            return []
        vectors = self._goal_vectors(encoder, tuple(one.goal for one in found))
        similarity = np.round(vectors @ encoder.encode([goal])[0], _DECIMALS)
        order = sorted(range(len(found)), key=lambda index: (-similarity[index], -found[index].number))
        return [(float(similarity[index]), found[index]) for index in order]

    def digest(self) -> str:
        """The digest of goals, apps and lines: two stores with the same demonstrations have the same digest."""
        content = [(one.goal, one.app, one.lines) for one in self.all()]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def _goal_vectors(self, encoder: Encoder, goals: tuple[str, ...]) -> np.ndarray:
        """float32 (N, D); kept until the store or the encoder changes."""
        with self._lock:
            if self._vectors is None or self._vectors[0] is not encoder or self._vectors[1] != goals:
                self._vectors = encoder, goals, encoder.encode(goals)
            return self._vectors[2]

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, in which the table exists; committed if the block ends without an error."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DemonstrationsError(f"{self.path} cannot be created: {error.strerror}; choose another file") from None
        with self._opened(creates=True) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                if _is_new(connection):
                    connection.execute(_TABLE)
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _opened(self, creates: bool = False) -> Iterator[sqlite3.Connection]:
        mode = "rwc" if creates else "rw"
        try:
            address = f"{self.path.absolute().as_uri()}?mode={mode}"
            with closing(sqlite3.connect(address, _WAIT_SECONDS, isolation_level=None, uri=True)) as connection:
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("BEGIN")  # no other process writes between the parts of the check
                self._check(connection)
                connection.execute("COMMIT")
                yield connection
        except sqlite3.Error as error:
            raise self._error(error) from None

    def _check(self, connection: sqlite3.Connection) -> None:
        """Raises DemonstrationsError for another program's file, another version or damage."""
        if _is_new(connection):
            if self.path.stat().st_size:
                self._check_cut(connection)
            return
        if _pragma(connection, "application_id") != APPLICATION_ID:
            raise DemonstrationsError(
                f"{self.path} is an SQLite file of another program, not a store of demonstrations; choose another file"
            )
        version = _pragma(connection, "user_version")
        if version != VERSION:
            raise DemonstrationsError(
                f"{self.path} has version {version} of the store of demonstrations, and this program reads version "
                f"{VERSION}; use the program that wrote it, or choose another file"
            )
        self._check_cut(connection)
        damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise self._damaged(str(damage).splitlines()[0])

    def _check_cut(self, connection: sqlite3.Connection) -> None:
        """SQLite itself takes a file with less than a page for an empty one."""
        pages, size = max(1, _pragma(connection, "page_count")), self.path.stat().st_size
        if size < pages * _pragma(connection, "page_size"):
            raise self._damaged(f"{size:,} bytes of {pages} pages")

    def _error(self, error: sqlite3.Error) -> DemonstrationsError:
        reason = str(error)
        if "not a database" in reason:
            return DemonstrationsError(
                f"{self.path} is not a store of demonstrations (SQLite); choose another file, or move this one away"
            )
        if "locked" in reason:
            return DemonstrationsError(
                f"{self.path} is in use by another process for more than {_WAIT_SECONDS:g} s; run the command again"
            )
        if "unable to open" in reason or "readonly" in reason:
            return DemonstrationsError(f"{self.path} cannot be opened ({reason}); check that it is a writable file")
        return self._damaged(reason)

    def _damaged(self, reason: str) -> DemonstrationsError:
        return DemonstrationsError(
            f"{self.path} is a damaged store of demonstrations ({reason}); move it away, and record or import again"
        )

    def _demonstration(self, row: tuple) -> Demonstration:
        number, goal, app, lines, recorded, checksum = row
        try:
            is_whole = checksum == _checksum(number, goal, app, lines, recorded)
        except TypeError:  # bytes in place of a text
            is_whole = False
        if not is_whole:
            raise self._damaged(f"demonstration {number}: it differs from its checksum")
        return Demonstration(number, goal, app, tuple(json.loads(lines)), recorded)


def _is_new(connection: sqlite3.Connection) -> bool:
    """Whether the file is empty: no transaction has been completed in it."""
    return _pragma(connection, "page_count") == 0 or (
        _pragma(connection, "application_id") == 0
        and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _checksum(*row: object) -> str:
    """The checksum of a row: SQLite checks its pages, but not the texts in them."""
    return hashlib.sha256(json.dumps(row).encode()).hexdigest()


def _json(lines: Sequence[str]) -> str:
    return json.dumps(list(lines), ensure_ascii=False)


def checked(goal: str, app: str, lines: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """Each text as one line of printable characters, without secrets. Raises ValueError for what is not stored."""
    goal, app = _one_line(goal), _one_line(app)
    rows = [row for row in map(_one_line, lines) if row]
    if not goal:
        raise ValueError("the goal is empty")
    if not rows:
        raise ValueError("it has no action")
    if len(rows) > MOST_LINES:
        raise ValueError(f"it has {len(rows)} actions, and at most {MOST_LINES} are stored")
    if max(len(goal), len(app)) > LONGEST_GOAL:
        raise ValueError(f"its goal or app has more than {LONGEST_GOAL} characters")
    if any(len(row) > LONGEST_LINE for row in rows):
        raise ValueError(f"an action has more than {LONGEST_LINE} characters")
    secrets = _typed_secrets(rows)
    return secrets.mask(goal), secrets.mask(app), tuple(map(secrets.mask, rows))


def _typed_secrets(lines: Sequence[str]) -> Secrets:
    """What the lines type into fields for secrets. `record` has masked it; people and tables may not have."""
    secrets = Secrets()
    for found in (pattern.fullmatch(line) for line in lines for pattern in _TYPED):
        if found is not None and names_secret(found["field"]):
            secrets.add(found["text"], continues=False)
    return secrets


def _one_line(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return mask_cards(" ".join("".join(letter if letter.isprintable() else " " for letter in text).split()))
