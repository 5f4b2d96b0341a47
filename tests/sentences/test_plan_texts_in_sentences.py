"""Plans in trajectories: where each text stands, what is never in an input, and how answers split."""

from dataclasses import replace

import pytest
from helpers import tiny
from helpers.data.notes import ALL, FORMS, lines, row, weighted, with_plans, with_texts
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from vlm_agent.errors import UserError
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences import IGNORED, ROLES, Sentence
from vlm_agent.sentences.notes import as_line, from_line
from vlm_agent.sentences.windows import EarlierSteps

WORDS = tiny.tokenizer()
EPISODE = with_plans(with_texts(tiny.episode()))
ACTIONS = [tiny.LANGUAGE.encode(step.action) for step in EPISODE.steps]
THOUGHTS = weighted(row(7), 0.5)
every_form = pytest.mark.parametrize("form", FORMS)


def sentences(form: dict, screens: int | None = 0, may_miss: bool = False):
    past = None if screens is None else EarlierSteps(screens)
    return replace(tiny.sentences(WORDS), notes=lines(form, may_miss=may_miss), past=past)


def text_of(sentence: Sentence) -> str:
    return WORDS.decode([id_ for id_ in sentence.input_ids if id_ >= 0]).removeprefix("<s>")


def learned(sentence: Sentence, role: str) -> str:
    supervised = zip(sentence.labels, sentence.roles, strict=True)
    ids = [label for label, of in supervised if label != IGNORED and of == ROLES.index(role)]
    return WORDS.decode(ids, skip_special_tokens=True)


def prompt(writer, number: int) -> str:
    return text_of(writer.prompt(replace(EPISODE, steps=EPISODE.steps[: number + 1])))


def test_a_step_of_d_pot_remembers_the_steps_and_writes_plan_step_and_action():
    assert text_of(sentences(FORMS["d_pot"]).build_step(EPISODE, 2)) == (
        f"Goal: {EPISODE.goal}\nDone:\nstep-0\nstep-1\n\nAction: plan-2 bb; rest-2\nstep-2\n{ACTIONS[2]}</s>"
    )


def test_given_texts_are_read_before_the_screen():
    text = text_of(sentences(FORMS["given"]).build_step(EPISODE, 2))
    assert text.startswith(f"Goal: {EPISODE.goal}\nDone:\nstep-0\nstep-1\nPlan: plan-2 bb; rest-2\nStep: step-2\n")
    assert text.endswith(f"\nAction: {ACTIONS[2]}</s>")


def test_a_static_plan_is_learned_at_the_first_step_and_read_at_later_ones():
    writer = sentences(FORMS["static"])
    assert learned(writer.build_step(EPISODE, 0), "plan") == "plan-0 ; rest-0\n".replace(" ;", ";")
    for number in range(1, len(EPISODE)):
        sentence = writer.build_step(EPISODE, number)
        assert text_of(sentence).startswith(f"Goal: {EPISODE.goal}\nPlan: plan-0; rest-0\nDone:\n")
        assert learned(sentence, "plan") == ""


def test_plan_and_step_precede_the_thoughts_of_coat():
    sentence = sentences(FORMS["d_pot"] | THOUGHTS, 1).build_step(EPISODE, 2)
    assert text_of(sentence).endswith(
        f"Action: step-1\nthink-1 a\naction-1\n{ACTIONS[1]}</s>\n"
        f"Action: plan-2 bb; rest-2\nstep-2\nthink-2 aa\naction-2\n{ACTIONS[2]}</s>"
    )


def test_plans_have_their_role_and_weight():
    sentence = sentences(weighted(FORMS["d_pot"], 0.25), 1).build_step(EPISODE, 2)
    assert learned(sentence, "plan") == "plan-2 bb; rest-2\nstep-2\n"
    assert learned(sentence, "action") == ACTIONS[2]
    weights = dict(zip(sentence.roles, sentence.weights, strict=True))
    assert weights == {ROLES.index("plan"): 0.25, ROLES.index("action"): 1}


@every_form
@pytest.mark.parametrize("screens", [0, 2])
@pytest.mark.parametrize("number", range(len(EPISODE)))
def test_no_input_has_its_own_learned_texts_an_earlier_plan_or_a_text_of_a_later_step(form, screens, number):
    how = FORMS[form]
    text = prompt(sentences(how, screens), number)
    for n in range(len(EPISODE)):
        plan, step = f"plan-{n}" in text, f"step-{n}" in text
        assert n <= number or not (plan or step)
        if n == number:
            assert plan == (how.get("plan") == "read")
            assert step == (how.get("step") == "read")
        elif n < number:
            assert plan == (how.get("plan") == "first" and n == 0)
            assert step == ("step" in how)


@every_form
@pytest.mark.parametrize("screens", [0, 1, None])
def test_acting_reads_what_training_reads(form, screens):
    if screens is None and "plan" in FORMS[form]:
        return
    writer = sentences(FORMS[form] | ALL, screens)
    for number in range(len(EPISODE)):
        ids = writer.prompt(replace(EPISODE, steps=EPISODE.steps[: number + 1])).input_ids
        whole = writer.build(EPISODE) if screens is None else writer.build_step(EPISODE, number)
        assert whole.input_ids[: len(ids)] == ids


@every_form
def test_another_text_of_this_or_a_later_step_changes_no_input_that_does_not_read_it(form):
    how = FORMS[form]
    for number in range(len(EPISODE)):
        changed = list(EPISODE.steps)
        for n in range(number, len(EPISODE)):
            others = {part: "other" for part in ("plan", "step") if n != number or how.get(part) != "read"}
            changed[n] = replace(changed[n], notes={**changed[n].notes, **others})
        writer, cut = sentences(how, 1), replace(EPISODE, steps=tuple(changed[: number + 1]))
        assert text_of(writer.prompt(cut)) == prompt(writer, number)


def test_a_step_without_words_is_its_action_in_the_history():
    steps = (replace(EPISODE.steps[0], notes={}), *EPISODE.steps[1:])
    text = text_of(sentences(FORMS["d_pot"]).build_step(replace(EPISODE, steps=steps), 2))
    assert f"Done:\n{ACTIONS[0]}\nstep-1\n" in text


def test_a_plan_that_is_read_and_missing_is_an_error_that_says_what_to_do():
    bare = replace(EPISODE, steps=tuple(replace(step, notes={}) for step in EPISODE.steps))
    with pytest.raises(UserError, match=r"data.notes.step: read reads a note .* a phone has none"):
        sentences(FORMS["given step"]).build_step(bare, 0)
    assert "Step:" not in text_of(sentences({"step": "read"}, may_miss=True).build_step(bare, 0))
    assert learned(sentences(FORMS["d_pot"]).build_step(bare, 0), "plan") == "\n\n"


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30) | st.lists(st.sampled_from(["; ", "\n", "a", ";"])).map(
    "".join
)


@given(st.lists(TEXTS, max_size=4).map(tuple), TEXTS, st.sampled_from([*FORMS]))
def test_any_plan_splits_from_its_action(plan, step, form):
    notes, texts = lines(FORMS[form] | THOUGHTS), {"plan": "\n".join(plan), "step": step}
    answer = "".join(notes.learned({**EPISODE.steps[1].notes, **texts})) + 'type "a\\n b"'
    found, action = notes.split(answer)
    assert action == 'type "a\\n b"'
    assert (found["think"], found["action"]) == ("think-1 a", "action-1")
    names = notes.learned_names
    assert found.get("plan") == (from_line("plan", as_line("plan", texts["plan"])) if "plan" in names else None)
    assert found.get("step") == (" ".join(step.split()) if "step" in names else None)
    again = found.get("plan", "")
    assert from_line("plan", as_line("plan", again)) == again


@given(TEXTS)
def test_an_ending_completes_any_plan_to_an_action(text):
    for form in ("d_pot", "dynamic", "static, step"):
        writer = sentences(FORMS[form] | THOUGHTS)
        ending = writer.ending(text)
        if ending is not None:
            assert tiny.LANGUAGE.decode(writer.notes.split(text + ending)[1]) is not None
        assert text.count("\n") >= len(writer.notes.learned_names) or ending is not None


def test_the_step_describes_the_action_unless_the_action_is_described():
    assert lines({"step": "learned"}).split("go\nx") == ({"step": "go", "action": "go"}, "x")
    both = lines({"step": "learned", "action": "learned"}).split("go\ntap it\nx")
    assert both == ({"step": "go", "action": "tap it"}, "x")


def data(**keys) -> DataRecipe:
    return DataRecipe(shards="shards", **keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"notes": {"plan": "learned"}}, "notes.plan: learned needs past_screens"),
        ({"notes": {"step": "first"}}, "step cannot be first; it is read or learned"),
        ({"notes": {"think": "read"}}, "think cannot be read; it is learned"),
        ({"notes": {"step": "learned"}, "sentences": "chain_of_actions"}, "notes.step needs sentences: trajectory"),
        (
            {"notes": {"steps": "learned"}},
            "steps is unknown; choose from result, screen, plan, step, html, think, action",
        ),
        ({"notes": "coat_11"}, "'coat_11' is unknown; give notes, or choose one of coat_1, .* d_pot"),
        ({"notes": {"step": {"use": "read", "weight": 2}}}, "step is read and has no loss; remove its weight"),
    ],
)
def test_settings_that_a_run_does_not_have_are_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        data(**keys)


def test_a_preset_is_saved_as_its_notes(tmp_path):
    content = tiny.recipe(tmp_path, tmp_path / "run")
    assert Recipe(**content).data.notes == {}
    content["data"] |= {"notes": "d_pot", "past_screens": 0}
    recipe = Recipe(**content)
    assert {name: note.use for name, note in recipe.data.notes.items()} == FORMS["d_pot"]
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    from vlm_agent.recipe.run import read_recipe

    assert read_recipe(tmp_path / "recipe.yaml") == recipe
