"""Damage of a file's bytes: flipped bits, cuts, swapped pieces, inserted bytes."""

import random


def _flip(rng: random.Random, content: bytearray) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def _cut(rng: random.Random, content: bytearray) -> bytes:
    """The end is lost, or a piece from the middle."""
    start = rng.randrange(len(content))
    if rng.random() < 0.5:
        return bytes(content[:start])
    return bytes(content[:start] + content[start + rng.randint(1, 64) :])


def _swap(rng: random.Random, content: bytearray) -> bytes:
    size = rng.randint(1, min(64, len(content) // 2))
    first, second = sorted((rng.randrange(len(content) - size + 1), rng.randrange(len(content) - size + 1)))
    size = min(size, second - first)
    content[first : first + size], content[second : second + size] = (
        content[second : second + size],
        content[first : first + size],
    )
    return bytes(content)


def _insert(rng: random.Random, content: bytearray) -> bytes:
    """Random bytes, or a piece of the file itself."""
    count, place, start = rng.randint(1, 64), rng.randrange(len(content) + 1), rng.randrange(len(content))
    piece = rng.randbytes(count) if rng.random() < 0.5 else content[start : start + count]
    return bytes(content[:place] + piece + content[place:])


MUTATIONS = (_flip, _flip, _cut, _swap, _insert)


def mutated(rng: random.Random, content: bytes) -> bytes:
    return rng.choice(MUTATIONS)(rng, bytearray(content))
