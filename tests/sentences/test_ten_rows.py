"""The sentences of the ten rows of table 5 for a real episode of Android in the Zoo, as a snapshot.

`python tests/sentences/test_ten_rows.py > tests/data/coat/ten_rows.txt` writes it again. Texts of the episode are shown
as [SD 0], [AT 0], [AD 0], [AR 0]; lengths are in tokens of the embedded base (trajectories) and of T5 (steps).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.data.notes import ROWS, headed, lines, row
from helpers.data.step_ids import source_ids, target_of, target_text
from transformers import AutoTokenizer

from vlm_agent.action_languages import language_settings
from vlm_agent.datasets.sources.aitz import read_steps
from vlm_agent.episodes import Episode
from vlm_agent.models.build import load_sentences
from vlm_agent.models.run_layout import base_folder
from vlm_agent.sentences import SCREEN_TOKEN
from vlm_agent.sentences.steps import StepSentences
from vlm_agent.texts.lines import one_line

SNAPSHOT = Path(__file__).parents[1] / "data/coat/ten_rows.txt"
NAMED = language_settings({"name": "named"}).build()
AUTO_UI = language_settings({"name": "auto_ui"}).build()
SHORT = {"screen": "SD", "think": "AT", "action": "AD", "result": "AR"}


def real_episode(shared: Path) -> Episode:
    (path,) = (shared / "data/aitz_episode").glob("*.json")
    read = list(read_steps(path))
    return Episode("real", "google_apps", read[0].goal, tuple(entry.step for entry in read))


def rendered(shared: Path) -> Iterator[str]:
    episode = real_episode(shared)
    named = load_sentences(base_folder("phone_vlm_tiny"), NAMED)
    t5 = AutoTokenizer.from_pretrained(shared / "weights/t5-tokenizer")
    for number in ROWS:
        names = (SHORT[name] for name in ("screen", "result", "think", "action") if name in row(number))
        yield f"==== row {number}: {', '.join(names) or 'none'}"
        yield from trajectory(replace(named, notes=lines(row(number))), episode)
        sentences = StepSentences(t5, AUTO_UI, max_source_tokens=5000, max_target_tokens=5000)
        yield from steps(replace(sentences, notes=headed(row(number))), episode)


def trajectory(sentences, episode: Episode) -> Iterator[str]:
    sentence, text, ids = sentences.build(episode), "", list[int]()
    for id_ in [*sentence.input_ids, SCREEN_TOKEN]:
        if id_ != SCREEN_TOKEN:
            ids.append(id_)
        elif ids:
            text += sentences.tokenizer.decode(ids) + "[screen]"
            ids = []
    lengths = f"{len(sentence.input_ids) - sentence.input_ids.count(SCREEN_TOKEN)} tokens of text"
    yield f"-- trajectory, {lengths}, {sentence.supervised} supervised"
    yield shortened(text.removesuffix("[screen]"), episode)


def steps(sentences: StepSentences, episode: Episode) -> Iterator[str]:
    for number in range(len(episode)):
        source, target = sentences.source_of(episode, number), target_of(sentences, episode.steps[number:])
        yield f"-- step {number}, source of {len(source_ids(sentences, source))} tokens, target of {len(target)}"
        yield shortened(sentences.text(source_ids(sentences, source)), episode, sentences)
        yield shortened(target_text(sentences, episode.steps[number:]), episode)


def shortened(text: str, episode: Episode, sentences: StepSentences | None = None) -> str:
    """`text` with a mark for each text of CoAT. `sentences`: whose tokenizer has rewritten the text."""
    for number, step in enumerate(episode.steps):
        for part, name in SHORT.items():
            line = one_line(step.notes.get(part, ""))
            if sentences is not None:
                line = sentences.text(sentences.ids(line))
            if line:
                text = text.replace(line, f"[{name} {number}]")
    return text


def test_the_ten_rows_are_those_of_the_snapshot(shared):
    assert "\n".join(rendered(shared)) + "\n" == SNAPSHOT.read_text(encoding="utf-8")


def test_no_input_of_the_real_episode_has_the_result_of_its_own_action_or_a_later_text(shared):
    """In the snapshot, so that a snapshot with a leak cannot be accepted."""
    sources = 0
    for block in SNAPSHOT.read_text(encoding="utf-8").split("-- ")[1:]:
        if not block.startswith("step "):
            continue
        number, source = int(block.split()[1].strip(",")), block.splitlines()[1]
        sources += 1
        for later in range(number, 4):
            assert f"[AR {later}]" not in source
            assert f"[AT {later}]" not in source and f"[AD {later}]" not in source
            assert later == number or f"[SD {later}]" not in source
    assert sources == 4 * len(ROWS)


@pytest.mark.parametrize("number", ROWS)
def test_a_trajectory_has_no_text_before_the_screen_that_shows_it(number):
    block = SNAPSHOT.read_text(encoding="utf-8").split("==== row ")[number]
    text = block.partition("-- trajectory")[2].partition("-- step")[0]
    order = [text.index(f"[SD {n}]") for n in range(4)] if "[SD" in text else [0, 0, 0, 0]
    assert order == sorted(order)
    for n in range(3):
        if f"[AR {n}]" in text and "[AD" in text:
            assert text.index(f"[AD {n}]") < text.index(f"[AR {n}]") < text.index(f"[AD {n + 1}]")
    assert "[AR 3]" not in text


if __name__ == "__main__":
    print("\n".join(rendered(Path(__file__).parents[3] / "shared")))
