"""Settings that agents of trained runs share. Nothing here imports torch before the run is read."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlm_agent.action_languages import LanguageSettings
from vlm_agent.agents.agent import Agent, AgentSettings
from vlm_agent.agents.controls import CONTROLS, controlled
from vlm_agent.errors import UserError
from vlm_agent.recipe.data import DataRecipe
from vlm_agent.recipe.notes import NOTES
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.sentences.notes import IN_WORDS, UsedNotes

if TYPE_CHECKING:
    from vlm_agent.models.run_layout import Trained


_OF_PLANNERS = {"plan": "plans", "step": "immediate steps"}
"""Notes that a planner writes, by what reports call them."""

RECORDED_NOTE = "recorded, of the current step; no phone gives it"
_RECORDED_STEPS = "recorded, as the earlier actions are; online the agent reads its own"


class RunSettings(AgentSettings):
    """`run`: a run folder, one of its checkpoints (RUN/checkpoints/checkpoint-N), or the name of an embedded base.

    `bf16`: mixed precision, which is faster but not bit-exact. `constrained`: constrained decoding, so that every
    answer is an action. `merged`: whether an adapter is added to the weights of its base, rounded once to their dtype;
    None: unless they are quantised.
    """

    run: str
    bf16: bool = False
    constrained: bool = False
    merged: bool | None = None

    @property
    def display_name(self) -> str:
        return self.run

    @property
    def run_label(self) -> str:
        return name_of_run(self.run)

    @property
    def language(self) -> LanguageSettings:
        return self.recipe.action_language

    @cached_property
    def _trained(self) -> "Trained":
        return run_of(self.run)

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe of the run. Raises UserError for a run that was trained on sentences of another kind."""
        return recipe_of(self.run, self.SENTENCES, f"agent {self.agent}")

    @property
    def text_inputs(self) -> tuple[str, ...]:
        return text_inputs_of(self.recipe.data)

    @property
    def text_notes(self) -> dict[str, str]:
        """What `data.notes` and `data.references` have the run read of planners and of other episodes, and where its
        adapter is."""
        notes, model = text_notes_of(self.recipe.data), self.recipe.model
        if self._trained.adapted and self.is_merged:
            notes["adapter"] = f"merged into {model.dtype} weights"
        elif self._trained.adapted:
            notes["adapter"] = f"apart from {model.dtype if model.quantisation is None else model.quantisation} weights"
        return notes

    @property
    def is_merged(self) -> bool:
        """Raises UserError for `merged: true` and a quantised base."""
        quantisation = self.recipe.model.quantisation
        if self.merged and quantisation is not None:
            raise UserError(
                f"--agent.merged true: {self.run} was trained on {quantisation} weights, whose rounding would lose the "
                "adapter; remove it, or evaluate the output of `vlm-agent merge`"
            )
        return quantisation is None if self.merged is None else self.merged

    @property
    def reads_elements(self) -> bool:
        data, notes = self.recipe.data, UsedNotes(self.recipe.data.notes)
        used = data.elements or notes.reads_phone or notes.reads_elements
        return self.recipe.model.is_text or used or super().reads_elements

    @property
    def grey_screens(self) -> str:
        return grey_screens_of(self.recipe) or super().grey_screens

    @property
    def learned_by(self) -> Path | None:
        from vlm_agent.models.run_layout import EMBEDDED

        return None if self.run in EMBEDDED else self._trained.run

    def identity(self) -> dict[str, Any]:
        """A sha256 of the model's files, and the settings of decoding. Raises FileNotFoundError without a model,
        CheckpointError where a file differs from what the run recorded."""
        self._trained.check()
        return {"checkpoint": self._trained.digest} | self.model_dump(include={"bf16", "constrained", "merged"})

    def device(self) -> str:
        from vlm_agent.models.weights.precision import describe_device, model_device

        return describe_device(model_device())

    def load(self) -> Agent:
        """The agent, under the control of the run's training (`data.control`), if any."""
        from vlm_agent.models.run_layout import base_folder

        control = self.recipe.data.control
        agent = self.build(base_folder(self.run))
        return agent if control is None else controlled(agent, CONTROLS[control])

    def build(self, folder: Path) -> Agent:
        """The agent of the run in `folder`, without a control."""
        raise NotImplementedError


def name_of_run(run: str) -> str:
    """What tables call a run: the name of its folder, after that of its parent if it is a number, such as a seed. A
    checkpoint has its own name behind that of its run."""
    from vlm_agent.models.run_layout import CHECKPOINTS

    path = Path(run).resolve()
    if path.parent.name == CHECKPOINTS:
        return f"{name_of_run(str(path.parent.parent))} {path.name}"
    return f"{path.parent.name}/{path.name}" if path.name.isdigit() else path.name


def text_inputs_of(data: DataRecipe) -> tuple[str, ...]:
    """The notes that a run reads, but for HTML and those of planners. A trajectory also has the learned ones of its
    earlier steps."""
    used = UsedNotes(data.notes)
    names = (*used.read_names, *(used.learned_names if data.sentence_options.rereads else ()))
    return tuple(name for name in names if name not in _OF_PLANNERS and not NOTES[name].of_elements)


def text_notes_of(data: DataRecipe) -> dict[str, str]:
    """Lines of the report on the notes of planners and the references that an agent of a run reads."""
    used, references = UsedNotes(data.notes), data.references
    notes = {_OF_PLANNERS[name]: RECORDED_NOTE for name in used.read_names if name in _OF_PLANNERS}
    notes |= {_OF_PLANNERS[name]: "the agent's own, of the first step" for name in used.first_names}
    if IN_WORDS in used.uses:
        notes["earlier steps"] = _RECORDED_STEPS
    if references is not None:
        notes["references"] = f"{references.count} training episodes of the run, nearest by {references.encoder}"
    return notes


def grey_screens_of(recipe: Recipe) -> str | None:
    """What the control hides from a text model; None for a model that sees pixels."""
    if not recipe.model.is_text:
        return None
    return "elements are removed; recorded texts stay, and answers are decoded on the true screen"


def run_of(run: str) -> "Trained":
    """The files of a run, one of its checkpoints or an embedded base. Raises FileNotFoundError if there are none,
    CheckpointError where one differs from what the run recorded; weights are not read."""
    from vlm_agent.models.run_layout import base_folder, checked

    return checked(base_folder(run))


def recipe_of(run: str, sentences: tuple[str, ...], reader: str) -> Recipe:
    """The recipe of `run`.

    Raises UserError unless the run was trained on one of these kinds of `sentences`; `reader` is who reads only them.
    """
    recipe = read_recipe(run_of(run).recipe)
    if recipe.data.sentences not in sentences:
        raise UserError(
            f"{run} was trained on data.sentences: {recipe.data.sentences}; {reader} needs a run of "
            f"{' or '.join(sentences)}. `--agent {run}` chooses the agent of the run"
        )
    return recipe
