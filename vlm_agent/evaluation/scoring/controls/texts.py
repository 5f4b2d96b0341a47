"""How published scorers compare typed texts and names of apps. Each rule takes the gold and the predicted text."""

MAX_COMPARED = 1000
"""Characters of a text that `alike` compares: its time grows with the product of two lengths."""


def contain(gold: str, predicted: str) -> bool:
    """Whether one text contains the other, in lower case without surrounding white space. An empty text is contained in
    every text, as in the published code."""
    gold, predicted = gold.lower().strip(), predicted.lower().strip()
    return gold in predicted or predicted in gold


def words_alike(gold: str, predicted: str) -> bool:
    """Equal, or F1 of the different words above 0.5 (OS-Genesis, `ac_eval.py`)."""
    return gold == predicted or f1(gold, predicted) > 0.5


def f1(gold: str, predicted: str) -> float:
    """The F1 of the sets of words in lower case; 0 if a text has no word."""
    first, second = set(gold.lower().split()), set(predicted.lower().split())
    common = len(first & second)
    return 2 * common / (len(first) + len(second)) if common else 0.0


def first_words_equal(gold: str, predicted: str) -> bool:
    """Equal, or equal in the first word, bracket included: OS-Atlas' code compares the second word of the lines
    `TYPE [text]`."""
    return gold == predicted or f"[{gold}]".lower().split()[0] == f"[{predicted}]".lower().split()[0]


def one_word_or_half(gold: str, predicted: str) -> bool:
    """F1 of the words at least 0.5 without square brackets, and of two single words one in the other (GUI-R1)."""
    first, second = (set(text.lower().replace("[", "").replace("]", "").split()) for text in (gold, predicted))
    if len(first) == len(second) == 1:
        (one,), (other,) = first, second
        return one in other or other in one
    common = len(first & second)
    return bool(common) and 2 * common / (len(first) + len(second)) >= 0.5


def lines_alike(gold: str, predicted: str) -> bool:
    """F1 of the words of the lines `TYPE [text]` above 0.5 (OS-Atlas on GUI-Odyssey)."""
    return f1(f"TYPE [{gold}]", f"TYPE [{predicted}]") > 0.5


def alike(gold: str, predicted: str) -> bool:
    """One text contains the other, or at least half of the longer one's characters stay (GUI-Odyssey,
    `GUIOdyssey_action_matching.py`); both are cut at a second colon, which its reader of `TYPE: text` drops."""
    gold, predicted = (text.split(":")[0].strip()[:MAX_COMPARED] for text in (gold, predicted))
    if gold in predicted or predicted in gold:
        return True
    return 1 - _edits(gold, predicted) / max(len(gold), len(predicted)) >= 0.5


def _edits(first: str, second: str) -> int:
    """The Levenshtein distance."""
    row = list(range(len(first) + 1))
    for place, letter in enumerate(second, 1):
        above, row[0] = row[0], place
        for at, other in enumerate(first, 1):
            above, row[at] = row[at], above if letter == other else 1 + min(above, row[at], row[at - 1])
    return row[-1]
