"""A damaged file is read as it was before, or is an error of one line that names it: never a traceback, never another
number.

`pytest -m slow tests/test_damaged_files.py -s` reads 2,000 mutations of each kind of file and prints the counts.
`python -m benchmarks.damage` counts what becomes of single flipped bits.
"""

import random
from collections import Counter
from pathlib import Path

import pytest
from helpers.robustness.damaged_files import AS_BEFORE, FLIPPED, KINDS, REFUSED, Kind, outcome
from helpers.robustness.mutated import mutated

FEW, MANY = 60, 2_000


def _outcomes(kind: Kind, folder: Path, count: int) -> Counter[str]:
    """How often a mutation was read as before, and how often it was an error that names the file."""
    path = kind.write(folder)
    content, expected = path.read_bytes(), kind.read(path)
    rng, outcomes = random.Random(27), Counter[str]()
    for number in range(count):
        path.write_bytes(mutated(rng, content))
        found, details = outcome(kind, path, expected)
        assert found in (AS_BEFORE, REFUSED), f"mutation {number}: {found}: {details}"
        outcomes[found] += 1
    path.write_bytes(content)
    assert kind.read(path) == expected
    return outcomes


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_damaged_file_is_read_as_before_or_refused_by_name(kind, tmp_path):
    assert _outcomes(kind, tmp_path, FEW)[REFUSED] > 0


@pytest.mark.parametrize("name", [name for name in FLIPPED if name not in KINDS])
def test_a_flipped_bit_is_read_as_before_or_refused_by_name(name, tmp_path):
    kind = FLIPPED[name]
    path = kind.write(tmp_path)
    content, expected, rng = path.read_bytes(), kind.read(path), random.Random(27)
    for number in range(FEW):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        found, details = outcome(kind, path, expected)
        assert found in (AS_BEFORE, REFUSED), f"flip {number}: {found}: {details}"


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_two_thousand_mutations(name, tmp_path):
    outcomes = _outcomes(KINDS[name], tmp_path, MANY)
    print(f"\n{name}: {MANY:,} mutations, {outcomes[REFUSED]:,} refused, {outcomes[AS_BEFORE]:,} read as before")
    assert outcomes.total() == MANY
