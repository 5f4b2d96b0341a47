"""`lessons` of a recipe: the curriculum of lessons on screens that are drawn during training.

Every probability of the curriculum is a key here. The defaults are those of curriculum.yaml.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from vlm_agent.errors import RecipeError
from vlm_agent.recipe.run import Recipe, ValidationRecipe
from vlm_agent.recipe.yaml_file import override_values, read_mapping, set_keys, validated
from vlm_agent.settings import Section

Probability = Annotated[float, Field(ge=0, le=1)]


def _check_sum(section: str, *shares: float) -> None:
    if sum(shares) > 1 + 1e-9:
        raise ValueError(f"the probabilities of {section} exclude each other and must add up to at most 1")


class WordRecipe(Section):
    """Words on drawn screens and in texts to type: from the phone's own vocabulary, else common English words, else
    random letters and numbers."""

    phone: Probability = 0.75
    common: Probability = 0.22

    @model_validator(mode="after")
    def _at_most_one(self) -> "WordRecipe":
        _check_sum("words", self.phone, self.common)
        return self


class CollageRecipe(Section):
    """`rows`: collages in rows; `tabs`: those with a line of tabs above. Elements of the others: a text, a labelled
    control, an app icon, else a plain icon. `second_word`: texts of two words."""

    rows: Probability = 0.4
    tabs: Probability = 0.5
    text: Probability = 0.45
    switch: Probability = 0.15
    app_icon: Probability = 0.2
    second_word: Probability = 0.3

    @model_validator(mode="after")
    def _at_most_one(self) -> "CollageRecipe":
        _check_sum("collage", self.text, self.switch, self.app_icon)
        return self


class RandomWalkRecipe(Section):
    """The touches that lead to the phone page of a drawn screen. `shade` and `popup`: screens that end under quick
    settings or a dialog."""

    stay_at_home: Probability = 0.2
    most_touches: NonNegativeInt = 3
    type: Probability = 0.6
    swipe: Probability = 0.15
    shade: Probability = 0.06
    popup: Probability = 0.06

    @model_validator(mode="after")
    def _at_most_one(self) -> "RandomWalkRecipe":
        _check_sum("random_walk", self.shade, self.popup)
        return self


class InstructedWalkRecipe(Section):
    """Walks whose goal names every step (`drawn/instructed_walk.py`).

    `type` and `enter` apply when a field has the focus; `swipe`, `back` and `home` are the steps that are not taps.
    `field`: taps on an empty text field where the screen has one. `app_by_name`: an app icon is named by its app, not
    by its icon type. `absent`: the last element of the goal is not on the screen, so the answer is `impossible`.
    `any_order`: walks of taps alone whose goal lists them shuffled. `partially_named`: in a partial instruction, steps
    before the last that the goal names although they are neither typed text nor reached by a swipe.
    """

    app_in_front: Probability = 0.4
    least_steps: PositiveInt = 2
    most_steps: PositiveInt = 6
    type: Probability = 0.7
    enter: Probability = 0.5
    swipe: Probability = 0.1
    back: Probability = 0.07
    home: Probability = 0.05
    field: Probability = 0.4
    app_by_name: Probability = 0.5
    absent: Probability = 0.1
    any_order: Probability = 0.5
    partially_named: Probability = 0.35

    @model_validator(mode="after")
    def _possible(self) -> "InstructedWalkRecipe":
        _check_sum("instructed_walk", self.swipe, self.back, self.home)
        if self.least_steps > self.most_steps:
            raise ValueError("least_steps must not be greater than most_steps")
        return self


class ExplorationWalkRecipe(Section):
    """Walks that search and swipe before they tap (`drawn/exploration_walk.py`).

    `popup` and `leave`: an open app first shows a dialog, or is left for home. `seek`: taps on an element that swipes
    bring into view; `seek_hidden` of those swipe towards a particular hidden element, at most `most_seek_swipes` times,
    the others `sideways_again` after each swipe, at most `most_sideways_swipes` times. `tap_typed`: the tap after
    typing is on an element with that text.
    """

    popup: Probability = 0.15
    leave: Probability = 0.4
    seek: Probability = 0.45
    seek_hidden: Probability = 0.75
    most_seek_swipes: PositiveInt = 6
    sideways_again: Probability = 0.45
    most_sideways_swipes: PositiveInt = 3
    type: Probability = 0.85
    lower_case: Probability = 0.7
    enter: Probability = 0.3
    tap_typed: Probability = 0.7
    field: Probability = 0.3
    app_by_name: Probability = 0.9


class SeekWalkRecipe(Section):
    """Walks to one hidden element (`drawn/exploration_walk.py`). `tile`: it is a tile of quick settings. `scrolled`:
    the page has been swiped before the walk."""

    tile: Probability = 0.12
    scrolled: Probability = 0.5


class CheckedWalkRecipe(Section):
    """Walks whose last action alone is learned (`drawn/instructed_walk.py`). `other`: the last tap was on another
    element, so the answer is back. `missing`: the last step of the goal is missing, and is the answer. The others are
    complete. `partial`: goals of taps that name the last step and few others."""

    other: Probability = 0.3
    missing: Probability = 0.35
    partial: Probability = 0.6

    @model_validator(mode="after")
    def _at_most_one(self) -> "CheckedWalkRecipe":
        _check_sum("checked_walk", self.other, self.missing)
        return self


class DrawnScreenRecipe(Section):
    """`page`: screens full of words and icons. `collage`: screens that are collages. The others are of simulated
    phones. `model_size`: screens drawn at the first of the pretraining sizes."""

    page: Probability = 0.0
    collage: Probability = 0.5
    model_size: Probability = 0.3

    @model_validator(mode="after")
    def _at_most_one(self) -> "DrawnScreenRecipe":
        _check_sum("screens", self.page, self.collage)
        return self


class LessonRecipe(Section):
    """Questions of lessons (`lessons.py`), for screens that have their subject.

    About whole screens: `listing` lists the elements in place of single questions. `absent_name` asks which name is not
    on the screen, `states` which switches are on and which tabs selected, by their labels and by places, and where
    switches are, `beyond` which ways it scrolls, `app` which app it shows; `alike`: of the elements that share their
    name, those that are asked by the name beside them.

    Goals before the screen: `copy_text` is a text to type, `state` a switch or tab to be on; the others name one to
    `most_screens` elements, `absent` of them not on their screen, `beside` of them by the name beside them.
    `text_after_name`: of the texts to type, those behind the name of a field.
    """

    listing: Probability = 0.1
    absent_name: Probability = 0.4
    states: Probability = 0.9
    beyond: Probability = 0.6
    app: Probability = 0.3
    alike: Probability = 0.7
    copy_text: Probability = 0.25
    state: Probability = 0.25
    absent: Probability = 0.12
    beside: Probability = 0.25
    text_after_name: Probability = 0.5
    most_screens: PositiveInt = 3


class DrawnRecipe(Section):
    """A stream of numbered lessons with at most `items` questions about each screen, harder by number.

    Stages begin after a share of all lessons of the run; a stage at 1 never begins. The first `dense` lessons ask about
    whole screens; after them every second lesson gives its goal before the screen. From `instructed_walks` on, a share
    `instructed_walk_share` of those are walks over a simulated phone whose goal names every step. From
    `exploration_walks` on, a share `exploration_walk_share` are walks that search and swipe, with a goal that names the
    last step and what has to be searched for; of the remaining walks, `partial_instruction_share` have a goal that
    names only some steps. Before these shares are drawn, `checked_walk_share` are walks whose end is to be recognised,
    from `instructed_walks` on, and `seek_walk_share` walks to a hidden element, from `exploration_walks` on.

    `named_empty_cells`: the share of visual tokens without an element that are supervised, with the end token.
    """

    dense: Probability = 0.3
    instructed_walks: Probability = 0.48
    exploration_walks: Probability = 0.5
    items: PositiveInt = 12
    checked_walk_share: Probability = 0.15
    seek_walk_share: Probability = 0.15
    instructed_walk_share: Probability = 0.5
    exploration_walk_share: Probability = 0.5
    partial_instruction_share: Probability = 0.6
    named_empty_cells: Probability = 0.1
    words: WordRecipe = WordRecipe()
    screens: DrawnScreenRecipe = DrawnScreenRecipe()
    collage: CollageRecipe = CollageRecipe()
    random_walk: RandomWalkRecipe = RandomWalkRecipe()
    instructed_walk: InstructedWalkRecipe = InstructedWalkRecipe()
    exploration_walk: ExplorationWalkRecipe = ExplorationWalkRecipe()
    seek_walk: SeekWalkRecipe = SeekWalkRecipe()
    checked_walk: CheckedWalkRecipe = CheckedWalkRecipe()
    lessons: LessonRecipe = LessonRecipe()

    @model_validator(mode="after")
    def _stages_in_order(self) -> "DrawnRecipe":
        if not self.dense <= self.instructed_walks <= self.exploration_walks:
            raise ValueError(
                "lessons get harder by number: dense, instructed_walks and exploration_walks must not decrease"
            )
        return self


def read_pretraining(path: Path, overrides: Mapping[str, str]) -> tuple[Recipe, DrawnRecipe]:
    """The recipe in a YAML file, and the curriculum in its section `lessons`, with dotted `overrides` applied.

    Raises RecipeError with file and key, also for keys that need a known number or length of sentences.
    """
    content = {"data": {}, **read_mapping(path, RecipeError)}
    set_keys(Recipe, content, override_values(overrides, RecipeError), RecipeError)
    lessons = validated(DrawnRecipe, content.pop("lessons", {}), f"{path}: lessons", RecipeError)
    recipe = validated(Recipe, content, str(path), RecipeError)
    training, sources = recipe.training, recipe.data.model_fields_set - {"workers"}
    if sources:
        raise RecipeError(f"{path}: data: remove {', '.join(sorted(sources))}; it has no effect on lessons")
    if training.batch_tokens or training.epochs:
        raise RecipeError(f"{path}: lessons are endless and of unknown length; give training.steps and .batch_size")
    if training.validation is not None and training.validation.split != ValidationRecipe().split:
        raise RecipeError(f"{path}: remove training.validation.split; lessons have no splits")
    return recipe, lessons
