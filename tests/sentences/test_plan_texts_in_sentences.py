"""Plans in trajectories: where each text stands, what is never in an input, and how answers split."""

from dataclasses import replace

import pytest
from helpers import tiny
from helpers.data.plans import FORMS, with_plans
from helpers.data.thoughts import ALL, with_texts
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from vlm_agent.errors import UserError
from vlm_agent.recipe.data import CoatRecipe, DataRecipe
from vlm_agent.recipe.plan import PlanRecipe
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences import IGNORED, ROLES, Sentence
from vlm_agent.sentences.thoughts import LineThoughts, PlanLines
from vlm_agent.sentences.thoughts.plans import read_written, written
from vlm_agent.sentences.windows import Past

WORDS = tiny.tokenizer()
EPISODE = with_plans(with_texts(tiny.episode()))
ACTIONS = [tiny.LANGUAGE.encode(step.action) for step in EPISODE.steps]
every_form = pytest.mark.parametrize("form", FORMS)


def sentences(form: dict, screens: int | None = 0, coat: CoatRecipe | None = None, **changed):
    thoughts = LineThoughts(CoatRecipe() if coat is None else coat, PlanLines(PlanRecipe(**form)))
    past = None if screens is None else Past(screens)
    return replace(tiny.sentences(WORDS), thoughts=thoughts, past=past, **changed)


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
    sentence = sentences(FORMS["d_pot"], 1, replace_coat()).build_step(EPISODE, 2)
    assert text_of(sentence).endswith(
        f"Action: step-1\nthink-1 a\naction-1\n{ACTIONS[1]}</s>\n"
        f"Action: plan-2 bb; rest-2\nstep-2\nthink-2 aa\naction-2\n{ACTIONS[2]}</s>"
    )


def replace_coat() -> CoatRecipe:
    return CoatRecipe(think=True, action=True, think_weight=0.5)


def test_plans_have_their_role_and_weight():
    sentence = sentences({**FORMS["d_pot"], "weight": 0.25}, 1).build_step(EPISODE, 2)
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
            assert plan == (how.get("plan") == "given")
            assert step == (how.get("step") == "given")
        elif n < number:
            assert plan == (how.get("plan") == "first" and n == 0)
            assert step == ("step" in how)


@every_form
@pytest.mark.parametrize("screens", [0, 1, None])
def test_acting_reads_what_training_reads(form, screens):
    if screens is None and "plan" in FORMS[form]:
        return
    writer = sentences(FORMS[form], screens, ALL)
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
            others = {part: "other" for part in ("plan", "step") if n != number or how.get(part) != "given"}
            changed[n] = replace(changed[n], notes={**changed[n].notes, **others})
        writer, cut = sentences(how, 1), replace(EPISODE, steps=tuple(changed[: number + 1]))
        assert text_of(writer.prompt(cut)) == prompt(writer, number)


def test_a_step_without_words_is_its_action_in_the_history():
    steps = (replace(EPISODE.steps[0], notes={}), *EPISODE.steps[1:])
    text = text_of(sentences(FORMS["d_pot"]).build_step(replace(EPISODE, steps=steps), 2))
    assert f"Done:\n{ACTIONS[0]}\nstep-1\n" in text


def test_a_plan_that_is_read_and_missing_is_an_error_that_says_what_to_do():
    bare = replace(EPISODE, steps=tuple(replace(step, notes={}) for step in EPISODE.steps))
    with pytest.raises(UserError, match=r"data.plan.step: given reads a plan .* a phone has none"):
        sentences(FORMS["given step"]).build_step(bare, 0)
    assert "Step:" not in text_of(sentences({"step": "given", "missing": "empty"}).build_step(bare, 0))
    assert learned(sentences(FORMS["d_pot"]).build_step(bare, 0), "plan") == "\n\n"


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30) | st.lists(st.sampled_from(["; ", "\n", "a", ";"])).map(
    "".join
)


@given(st.lists(TEXTS, max_size=4).map(tuple), TEXTS, st.sampled_from([*FORMS]))
def test_any_plan_splits_from_its_action(plan, step, form):
    lines = LineThoughts(replace_coat(), PlanLines(PlanRecipe(**FORMS[form])))
    texts, parts = {"plan": "\n".join(plan), "step": step}, PlanRecipe(**FORMS[form]).learned
    answer = "".join([*lines.plans.learned(texts), *lines.learned(EPISODE.steps[1].notes)]) + 'type "a\\n b"'
    found = lines.read_answer(answer)
    assert found.action == 'type "a\\n b"'
    assert (found.notes["think"], found.notes["action"]) == ("think-1 a", "action-1")
    assert found.notes.get("plan") == (
        read_written("plan", written("plan", texts["plan"])) if "plan" in parts else None
    )
    assert found.notes.get("step") == (" ".join(step.split()) if "step" in parts else None)
    again = found.notes.get("plan", "")
    assert read_written("plan", written("plan", again)) == again


@given(TEXTS)
def test_an_ending_completes_any_plan_to_an_action(text):
    for form in ("d_pot", "dynamic", "static, step"):
        writer = sentences(FORMS[form], coat=replace_coat())
        ending = writer.ending(text)
        if ending is not None:
            assert tiny.LANGUAGE.decode(writer.thoughts.read_answer(text + ending).action) is not None
        assert text.count("\n") >= writer.thoughts.before_action or ending is not None


def test_the_step_describes_the_action_unless_the_action_is_described():
    assert LineThoughts(plans=PlanLines(PlanRecipe(step="learned"))).read_answer("go\nx").notes["action"] == "go"
    both = LineThoughts(CoatRecipe(action=True), PlanLines(PlanRecipe(step="learned"))).read_answer("go\ntap it\nx")
    assert both.notes == {"step": "go", "action": "tap it"}


def data(**keys) -> DataRecipe:
    return DataRecipe(shards="shards", **keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"plan": {"plan": "learned"}}, "plan.plan: learned needs past_screens"),
        ({"plan": {"step": "first"}}, "step"),
        ({"plan": {"step": "learned"}, "sentences": "chain_of_actions"}, "trajectory"),
        ({"plan": {"steps": "learned"}}, "steps"),
    ],
)
def test_settings_that_a_run_does_not_have_are_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        data(**keys)


def test_off_in_yaml_is_off_and_a_recipe_is_saved_as_it_is(tmp_path):
    assert PlanRecipe(plan=False, step=False) == PlanRecipe()
    content = tiny.recipe(tmp_path, tmp_path / "run")
    assert Recipe(**content).data.plan == PlanRecipe()
    content["data"] |= {"plan": FORMS["d_pot"], "past_screens": 0}
    recipe = Recipe(**content)
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    from vlm_agent.recipe.run import read_recipe

    assert read_recipe(tmp_path / "recipe.yaml") == recipe
