"""Readings and verdicts a CPU second: languages of released agents, and scorers of AndroidControl and GUI-Odyssey.

    PYTHONPATH=.:tests/golden python -m benchmarks.released_agents [--seconds 2] [--damaged 1000000]

A reading decodes one of the answers of `tests/data/agents_2025/languages.jsonl.gz`. Verdicts are those on the cases of
`tests/data/agents_2025/dialects`, repeated to 20,000 rows that are read before the clock starts. `--damaged N` also
reads N answers with random edits, and every language's longest answer grown to 2 MB; an exception ends it. The last
line of output is JSON.
"""

import argparse
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from pathlib import Path

import agents_2025 as golden
import agents_2025_languages as answers

from vlm_agent.evaluation.scoring.dialects import DIALECTS
from vlm_agent.evaluation.scoring.steps import StepTable

DATA = Path(__file__).resolve().parents[1] / "tests/data/agents_2025"
ROWS = 20_000
LONG = 2_000_000
LETTERS = "()[]{}<>\"'\\,:= \n0xé"


def rate(work: Callable[[], int], seconds: float) -> int:
    """Units of `work` a CPU second."""
    done, began = 0, time.process_time()
    while (spent := time.process_time() - began) < seconds:
        done += work()
    return round(done / spent)


def readings(seconds: float) -> dict[str, int]:
    found = {}
    for name, cases in by_language().items():
        found[name] = rate(lambda cases=cases: sum(decode(*case) for case in cases), seconds)
    return found


def by_language() -> dict[str, list[tuple]]:
    """(language, text, screen) of each answer that is read, by name."""
    cases, languages = defaultdict(list), {}
    for row in answers.rows_of(DATA / "languages.jsonl.gz"):
        if "read_as" not in row:
            key = json.dumps([row["language"], row["screen"]], sort_keys=True)
            language = languages.setdefault(key, answers.language_of(row))
            cases[row["language"]].append((language, row["text"], answers.screen_of(row)))
    return dict(cases)


def decode(language: object, text: str, screen: object) -> int:
    language.decode(text, screen)
    return 1


def verdicts(seconds: float) -> dict[str, int]:
    found = {}
    for path in sorted((DATA / "dialects").glob("*.jsonl.gz")):
        name = path.name.partition(".")[0]
        table = StepTable.of(list(islice(cycle(golden.case_rows(golden.read(str(path)))), ROWS)))
        found[name] = rate(lambda table=table, name=name: len(DIALECTS[name].judge(table).right), seconds)
    return found


def damaged(count: int) -> dict[str, float]:
    """Seconds of `count` damaged answers, and of the slowest one of 2 MB."""
    rng, cases = random.Random(0), [case for found in by_language().values() for case in found]
    began = time.process_time()
    for language, text, screen in islice(cycle(cases), count):
        decode(language, edited(text, rng), screen)
    seconds, slowest = time.process_time() - began, 0.0
    for language, text, screen in longest():
        began = time.process_time()
        decode(language, text, screen)
        slowest = max(slowest, time.process_time() - began)
    return {"answers": count, "seconds": round(seconds, 1), "slowest_of_2_mb": round(slowest, 2)}


def edited(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(LETTERS) * rng.randint(0, 3) + text[at + rng.randint(0, 3) :]
    return text


def longest() -> Iterable[tuple]:
    """A long typed text, and a repetition of the whole answer, for each language."""
    for cases in by_language().values():
        language, text, screen = max(cases, key=lambda case: len(case[1]))
        yield language, text * (LONG // len(text)), screen
        half = len(text) // 2
        yield from ((language, text[:half] + letter * LONG + text[half:], screen) for letter in LETTERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2, metavar="S", help="CPU seconds of each figure")
    parser.add_argument("--damaged", type=int, default=0, metavar="N")
    options = parser.parse_args()
    record = {"readings": readings(options.seconds), "verdicts": verdicts(options.seconds)}
    if options.damaged:
        record["damaged"] = damaged(options.damaged)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
