"""The texts of CoAT in sentences: where each stands, what is never there, and how answers split."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import tiny
from helpers.data.notes import ALL, headed, lines, row
from helpers.data.step_ids import source_ids, target_of, target_text
from hypothesis import given
from hypothesis import strategies as st

from vlm_agent.action_languages import language_settings
from vlm_agent.episodes import Episode, recorded_screen
from vlm_agent.errors import UserError
from vlm_agent.models.qwen_vl.model import CHAT_TURNS
from vlm_agent.sentences import IGNORED, ROLES, Sentence
from vlm_agent.sentences.notes import (
    HeadedNotes,
    notes_at,
    shuffled_results,
    with_shuffled_notes,
    with_shuffled_results,
)
from vlm_agent.sentences.steps import PLAN, StepSentences, TooLongError

WORDS = tiny.tokenizer()
AUTO_UI = language_settings({"name": "auto_ui"}).build()
THINK, ACTION, BOTH = row(5), row(6), row(7)


def with_texts(episode: Episode) -> Episode:
    steps = [
        replace(
            step,
            notes={"screen": f"screen-{n}", "think": f"think-{n}", "action": f"action-{n}", "result": f"result-{n}"},
        )
        for n, step in enumerate(episode.steps)
    ]
    return replace(episode, steps=tuple(steps))


EPISODE = with_texts(tiny.episode())


def trajectories(notes: dict = ALL, **changed):
    return replace(tiny.sentences(WORDS), notes=lines(notes), **changed)


def written(notes: HeadedNotes, texts: dict) -> str:
    """The start of a target."""
    return "".join(segment.text for segment in notes.supervised(texts))


def steps(notes: dict = ALL, **limits) -> StepSentences:
    limits = {"max_source_tokens": 2000, "max_target_tokens": 2000} | limits
    return StepSentences(WORDS, AUTO_UI, notes=headed(notes), **limits)


def sentence_of_step(sentences: StepSentences, number: int) -> Sentence:
    return sentences.build(EPISODE, number, [np.zeros((1, 2), np.float16)])


def learned(sentence: Sentence, role: str) -> list[int]:
    supervised = zip(sentence.labels, sentence.roles, strict=True)
    return [label for label, of in supervised if label != IGNORED and of == ROLES.index(role)]


def test_a_trajectory_reads_texts_before_each_screen_and_learns_thoughts_before_each_action():
    text = trajectories().text([id_ for id_ in trajectories().build(EPISODE).input_ids if id_ >= 0])
    assert text.startswith("Goal: open settings 0\nScreen: screen-0\n\nAction: think-0\naction-0\ntap at ")
    actions = [tiny.LANGUAGE.encode(step.action) for step in EPISODE.steps]
    for n in range(1, len(EPISODE)):
        before = f"{actions[n - 1]}Result: result-{n - 1}\nScreen: screen-{n}\n\nAction: think-{n}\naction-{n}\n"
        assert before + actions[n] in text
    assert f"result-{len(EPISODE) - 1}" not in text


def test_thoughts_have_their_role_and_weight_and_actions_keep_theirs():
    sentence, plain = trajectories().build(EPISODE), tiny.sentences(WORDS).build(EPISODE)
    assert learned(sentence, "action") == learned(plain, "action")
    thoughts = trajectories().text(learned(sentence, "thought"))
    assert thoughts == "".join(f"think-{n}\naction-{n}\n" for n in range(len(EPISODE)))
    by_role = {role: weight for role, weight in zip(sentence.roles, sentence.weights, strict=True) if weight != 1}
    assert by_role == {ROLES.index("thought"): 0.5}


def test_an_action_without_a_loss_has_thoughts_without_a_loss():
    sentence = trajectories().build(EPISODE, first_supervised_step=2)
    assert trajectories().text(learned(sentence, "thought")).startswith("think-2\n")


def test_a_source_reads_texts_after_the_goal_and_a_target_learns_thoughts_before_the_plan():
    sentences = steps()
    source, target = sentences.source_of(EPISODE, 1), target_of(sentences, EPISODE.steps[1:])
    tail = "Goal: open settings 0 Action Result: result-0 Screen Description: screen-1"
    assert sentences.text(source_ids(steps(), source)).endswith(tail)
    opening = "Action Think: think-1 ; Action Description: action-1 ; Action Plan: ["
    assert sentences.text(target.thought_ids + target.plan_ids).startswith(opening)
    assert target_text(sentences, EPISODE.steps[1:]).startswith(opening)
    sentence = sentence_of_step(sentences, 1)
    assert learned(sentence, "thought") == target.thought_ids
    assert learned(sentence, "plan") == target.plan_ids
    assert learned(sentence, "action") == target.decision_ids
    plain = target_of(steps({}), EPISODE.steps[1:])
    assert target.decision_ids == plain.decision_ids


@pytest.mark.parametrize("number", range(len(EPISODE)))
def test_no_input_has_the_result_of_its_own_action_or_a_text_of_a_later_step(number):
    everything = [trajectories(), trajectories(template=replace(CHAT_TURNS, end=""))]
    cut = replace(EPISODE, steps=EPISODE.steps[: number + 1])
    inputs = [[id_ for id_ in one.prompt(cut).input_ids if id_ >= 0] for one in everything]
    for ids in [*inputs, source_ids(steps(), steps().source_of(EPISODE, number))]:
        text = WORDS.decode(ids)
        assert f"screen-{number}" in text
        for later in range(number, len(EPISODE)):
            assert f"result-{later}" not in text
            assert f"think-{later}" not in text
            assert f"action-{later}" not in text
            assert later == number or f"screen-{later}" not in text
        assert number == 0 or f"result-{number - 1}" in text


def test_a_window_reads_the_result_of_the_action_before_it():
    text = trajectories().text([id_ for id_ in trajectories().build(EPISODE, 2, 4).input_ids if id_ >= 0])
    assert text.startswith("Goal: open settings 0\nResult: result-1\nScreen: screen-2\n")


def test_a_source_loses_its_actions_and_then_its_texts_but_never_the_goal():
    whole = steps().source_of(EPISODE, 3)
    bare = replace(recorded_screen(EPISODE, 3), notes={})
    alone = len(source_ids(steps(), steps(history=0).source(EPISODE.goal, (), bare)))
    found = []
    for limit in range(len(source_ids(steps(), whole)), alone, -1):
        sentences = steps(max_source_tokens=limit)
        try:
            source = sentences.source_of(EPISODE, 3)
        except TooLongError:
            break
        text = sentences.text(source_ids(steps(), source))
        assert "Goal: open settings 0" in text
        assert source.cut == 0 or source.dropped == 3
        found.append((source.dropped, source.cut))
    assert found[0] == (0, 0) and found[-1][1] > 0
    assert found == sorted(found)


@pytest.mark.parametrize("notes", [THINK, ACTION, BOTH])
def test_a_note_without_a_text_keeps_its_place(notes):
    bare = replace(EPISODE, steps=tuple(replace(step, notes={}) for step in EPISODE.steps))
    whole, single = trajectories(notes), steps(notes)
    answer = "".join(whole.notes.learned({})) + "tap at 1 2"
    assert whole.notes.split(answer) == (dict.fromkeys(notes, ""), "tap at 1 2")
    assert whole.build(bare).supervised == tiny.sentences(WORDS).build(bare).supervised + len(notes) * len(bare)
    text = target_text(single, bare.steps)
    assert single.notes.split(text) == (dict.fromkeys(notes, ""), text[text.index("Action Plan:") :])


def test_a_heading_without_a_space_after_it_keeps_the_first_letter_of_its_text():
    answer = "Action Think:look ;Action Description: tap on it ;Action Plan: []"
    thoughts, rest = headed(BOTH).split(answer)
    assert (thoughts, rest) == ({"think": "look", "action": "tap on it"}, "Action Plan: []")


TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
MARKS = ["Action Plan:", "Action Decision:", "Action Think:", ":", " ;", "\n", "x"]
MARKED = st.lists(st.sampled_from(MARKS)).map("".join)


@given(think=TEXTS | MARKED, action=TEXTS | MARKED)
def test_any_thought_splits_from_its_action(think, action):
    texts = {"think": think, "action": action}
    for names in (ALL, THINK, ACTION):
        notes = lines(names)
        thoughts, text = notes.split("".join(notes.learned(texts)) + 'type "a\\n b"')
        assert text == 'type "a\\n b"'
        assert thoughts == {name: " ".join(texts[name].split()) for name in notes.learned_names}
        notes = headed(names)
        thoughts, text = notes.split(written(notes, texts) + " Action Plan: [TYPE] ; Action Decision: x")
        assert text == "Action Plan: [TYPE] ; Action Decision: x"
        assert notes.split(written(notes, thoughts) + " Action Plan:")[0] == thoughts


@given(TEXTS | MARKED)
def test_any_answer_splits_without_an_exception(text):
    for names in (ALL, THINK, {}):
        for notes in (lines(names), headed(names)):
            found, action = notes.split(text)
            assert action in text
            assert set(found) <= set(notes.learned_names)


@given(TEXTS)
def test_an_ending_completes_any_thought_to_an_action(text):
    whole = trajectories()
    ending = whole.ending(text)
    if ending is not None:
        assert tiny.LANGUAGE.decode(whole.notes.split(text + ending)[1]) is not None
    assert text.count("\n") >= 2 or ending is not None
    single = steps()
    ending = single.ending(text)
    assert ending is not None
    assert AUTO_UI.decode(single.notes.split(text + ending)[1]) is not None


def test_an_ending_continues_the_link_where_the_answer_stops():
    single = steps()
    thoughts = written(single.notes, {"think": "look", "action": "tap it"}).removesuffix(HeadedNotes.LINK)
    expected = f"{thoughts}{HeadedNotes.LINK} {PLAN} ["
    for end in range(len(thoughts), len(expected) + 1):
        whole = expected[:end] + single.ending(expected[:end])
        assert whole.startswith(expected), (expected[:end], whole)
        assert AUTO_UI.decode(single.notes.split(whole)[1]) is not None


def test_a_tokenizer_without_line_feeds_is_refused(shared):
    from transformers import AutoTokenizer

    t5 = AutoTokenizer.from_pretrained(shared / "weights/t5-tokenizer")
    with pytest.raises(UserError, match="line feed"):
        replace(trajectories({}), tokenizer=t5, notes=lines(ALL))


def test_a_screen_without_recorded_texts_has_those_of_the_phone():
    plain = tiny.episode()
    assert notes_at(plain, 0)["result"] == ""
    assert all(notes_at(plain, number)["screen"] for number in range(len(plain)))
    assert notes_at(plain, 1)["result"]
    assert notes_at(EPISODE, 1) == {"screen": "screen-1", "result": "result-0"}


def test_shuffled_results_are_those_of_earlier_actions():
    results = [f"result-{n}" for n in range(30)]
    shuffled = shuffled_results(results, "goal")
    assert shuffled[0] == ""
    assert all(text in results[:n] for n, text in enumerate(shuffled) if n)
    assert shuffled == shuffled_results(results, "goal") != shuffled_results(results, "another")
    assert shuffled[:7] == shuffled_results(results[:7], "goal")
    changed = with_shuffled_results(EPISODE)
    read = [notes_at(changed, n)["result"] for n in range(len(EPISODE))]
    assert read == ["", *shuffled_results([f"result-{n}" for n in range(4)], EPISODE.goal)]
    assert [step.notes["think"] for step in changed.steps] == [step.notes["think"] for step in EPISODE.steps]
    screens = [recorded_screen(EPISODE, n) for n in range(len(EPISODE))]
    assert [screen.notes["result"] for screen in with_shuffled_notes(screens, EPISODE.goal)] == read
