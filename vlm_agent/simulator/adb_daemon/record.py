"""A record of what a phone received, in bounded memory."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

MAX_RECORDS, MAX_RECORDED_BYTES = 100_000, 32 << 20
"""The maximum of a record, in items and in bytes: a served phone runs for weeks, and a client may send long lines."""

Item = TypeVar("Item")


class Record(Sequence[Item], Generic[Item]):
    """The newest items. The oldest are dropped beyond `MAX_RECORDS` items or `MAX_RECORDED_BYTES`; the newest is always
    kept. `bytes_of`: the memory of an item."""

    def __init__(self, bytes_of: Callable[[Item], int]) -> None:
        self._bytes_of = bytes_of
        self._items: deque[Item] = deque()
        self._bytes = 0

    def append(self, item: Item) -> None:
        self._items.append(item)
        self._bytes += self._bytes_of(item)
        while len(self._items) > 1 and (len(self._items) > MAX_RECORDS or self._bytes > MAX_RECORDED_BYTES):
            self._bytes -= self._bytes_of(self._items.popleft())

    def clear(self) -> None:
        self._items.clear()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        return list(self._items)[index] if isinstance(index, slice) else self._items[index]
