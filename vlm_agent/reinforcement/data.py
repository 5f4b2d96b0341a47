"""The data module of a run of reinforcement: its rows are the agent's own answers."""

import copy
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import ACTION_NAMES
from vlm_agent.errors import RecipeError, TrainingError
from vlm_agent.models.build import Vocabulary
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.run_layout import base_folder, checked
from vlm_agent.models.weights.adapters import merge_adapter
from vlm_agent.models.weights.precision import cast_linear_weights, is_quantised
from vlm_agent.recipe.reinforcement import ReinforcementRecipe
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.reinforcement.methods import METHODS, Method, Trial
from vlm_agent.reinforcement.rollouts import Rollout, play, replayed, task_at
from vlm_agent.reinforcement.rounds import Round, practised_templates
from vlm_agent.reinforcement.sentences import Scored, collated, dealt, scored
from vlm_agent.sentences import NO_ACTION
from vlm_agent.sentences.image_sizes import CachedScreens
from vlm_agent.sentences.notes import UsedNotes
from vlm_agent.simulator import TEMPLATES
from vlm_agent.training.data.data_module import DataModule
from vlm_agent.training.data.shard_data import check_sentences
from vlm_agent.training.data.shard_data import data_module_of as recorded_data_of
from vlm_agent.training.engine import Engine, on_device
from vlm_agent.training.loop import ranks
from vlm_agent.training.run_folder.checkpoints import preserved_random_state

PATIENCE = 5
"""Rounds without anything to learn after which a run stops."""
LEARNED = ("learned_groups", "demonstrations")
DEMONSTRATION_WEIGHT = 0.5
"""The advantage of a demonstrated token. The largest one of GRPO is below 1."""


def data_of(recipe: Recipe) -> DataModule:
    """The data module of a recipe: of rollouts with a section `reinforcement`, else of recorded data."""
    return recorded_data_of(recipe) if recipe.reinforcement is None else RolloutData(recipe)


def _form(recipe: Recipe) -> dict[str, Any]:
    """The keys that decide what an agent reads and writes."""
    keys = ("past_screens", "history", "notes", "references", "control")
    return {"action_language": recipe.action_language, **{f"data.{key}": getattr(recipe.data, key) for key in keys}}


def recipe_of_base(base: Path) -> Recipe:
    """The recipe that trained the model in `model.base`."""
    return read_recipe(checked(base_folder(str(base))).recipe)


@dataclass(frozen=True)
class RolloutData(DataModule):
    @property
    def played(self) -> ReinforcementRecipe:
        assert self.recipe.reinforcement is not None  # noqa: S101 (`data_of`)
        return self.recipe.reinforcement

    @property
    def method(self) -> Method:
        """Raises RecipeError for an unknown one."""
        name = self.played.method
        if name not in METHODS:
            raise RecipeError(f"reinforcement.method: {name!r} is unknown; choose one of {', '.join(sorted(METHODS))}")
        return METHODS[name]

    @property
    def manifest(self) -> None:
        return None

    @property
    def data_digest(self) -> str:
        """sha256 of the names and weights of the task templates."""
        return hashlib.sha256(repr([(one.subset, one.name, one.weight) for one in TEMPLATES]).encode()).hexdigest()

    @property
    def learned_ids(self) -> tuple[()]:
        return ()

    @property
    def reads(self) -> str:
        played = self.played
        return (
            f"{played.rounds} rounds of {played.tasks} tasks, each played {played.samples} times, on simulated phones, "
            f"learned by {played.method}"
        )

    def vocabulary(self) -> Vocabulary:
        """Raises RecipeError for a model without a tokenizer of its own."""
        if self.recipe.model.word_tokenizer is not None:
            raise RecipeError("model: reinforcement starts from a trained agent; set model.base to its run folder")
        return Vocabulary(self.recipe.action_language.build().vocabulary(), ())

    def steps_of(self, rows: int) -> int:
        return self.played.steps

    def check(self, recipe_of: Callable[[Path], Recipe | None] = recipe_of_base) -> None:
        """Raises RecipeError for settings with which nothing could be learned. `recipe_of`: a base → its recipe; None
        where it is not known yet."""
        played = self.played
        if self.method.compares and played.samples == 1:
            raise RecipeError(
                f"reinforcement.samples: {played.method} compares the samples of a task, and all advantages of 1 "
                "sample are zero; use 8"
            )
        if played.all_fail == "demonstration" and UsedNotes(self.recipe.data.notes).learned_names:
            raise RecipeError("reinforcement.all_fail: demonstrations of phones have no notes to learn; use none")
        if (base := self.recipe.model.base) is not None and (learned := recipe_of(Path(base))) is not None:
            self._check_base(base, learned)
        if played.task_set != "simulated":
            raise RecipeError(f"reinforcement.task_set: {played.task_set!r} cannot be practised; use simulated")
        practised_templates(played)

    def _check_base(self, base: str, learned: Recipe) -> None:
        """Raises RecipeError where the base has learned sentences of another form."""
        for (key, own), known in zip(_form(self.recipe).items(), _form(learned).values(), strict=True):
            if own != known:
                raise RecipeError(f"{key}: {base} has learned {known!r}; use it in place of {own!r}, or another base")

    def stream(self) -> "RolloutStream":
        self.check()
        check_sentences(self.recipe, self.config, self.processor)
        return RolloutStream(self)


class RolloutStream:
    """Plays each round with the model at its start, and makes rows of what is to learn (`Batches`)."""

    def __init__(self, data: RolloutData) -> None:
        self.data, self.run = data, Path(data.recipe.output)
        self._figures: dict[str, float] = {}
        self._updating = 0.0

    def figures(self) -> dict[str, float]:
        """The figures of the newest round, with the `update_seconds` since its rollouts."""
        return self._figures | {"update_seconds": time.monotonic() - self._updating}

    def batches(self, numbers: range, engine: Engine, workers: int) -> Iterator[dict]:
        in_round = self.data.played.updates * self.data.rows_per_step
        for number, rows in itertools.groupby(numbers, lambda row: row // in_round):
            own = list(rows)
            is_new = own[0] == number * in_round + ranks.number()
            row_of = self._round(number, engine, is_new)
            for row in own:
                yield on_device(row_of(row % in_round), engine.place.device)

    def _round(self, number: int, engine: Engine, is_new: bool) -> Callable[[int], dict]:
        """Plays the round; returns its rows by number. `is_new`: the model has not changed since its start."""
        data, started = self.data, time.monotonic()
        played = Round(self.run, number, data.played, data.recipe.seed)
        is_resumed = played.folder.exists()
        with preserved_random_state():
            agent = acting_copy(engine, data)
            player = partial(play, agent, temperature=data.played.temperature, seed=played.sampling_seed)
            rollouts = played.played(digest_of(engine.model) if is_new else None, player)
        playing = time.monotonic() - started
        sentences, groups = self._learned(rollouts, agent)
        figures = played.score(rollouts, groups)
        refuse_idle_rounds(played)
        rows = dealt(sentences, data.played.updates * data.rows_per_step, f"{played.sampling_seed}/rows")
        rows = [row or [_of_nothing(rollouts[0], agent)] for row in rows]
        self._figures = {"round": number + 1.0, **figures}
        if not is_resumed:
            steps = sum(len(one.answers) for one in rollouts)
            self._figures |= {"rollout_seconds": playing, "steps_per_second": steps / playing}
        row_of = partial(self._collated, rows)
        if is_new:
            row = next((one for one in range(len(rows)) if any(map(Scored.is_sampled, rows[one]))), 0)
            difference = gap(engine, row_of(row), rows[row])
            self._figures |= {} if math.isnan(difference) else {"log_probability_gap": difference}
        self._updating = time.monotonic()
        return row_of

    def _collated(self, rows: Sequence[Sequence[Scored]], number: int) -> dict[str, Any]:
        data = self.data
        return collated(rows[number], data.processor, data.played.temperature, data.method.clip)

    def _learned(self, rollouts: Sequence[Rollout], agent: VlmAgent) -> tuple[list[Scored], dict[str, float]]:
        """The sentences of the groups with an advantage, and figures of all groups."""
        played, samples = self.data.played, self.data.played.samples
        found: list[Scored] = []
        figures = dict.fromkeys(("mixed_groups", *LEARNED), 0.0)
        for at in range(0, len(rollouts), samples):
            group = rollouts[at : at + samples]
            trials = [
                Trial(one.reward(played.reward), bool(one.outcome.success), [answer.state for answer in one.answers])
                for one in group
            ]
            figures["mixed_groups"] += len({trial.success for trial in trials}) > 1
            # Means of equal rewards differ from them by rounding.
            advantages = [[round(one, 9) for one in own] for own in self.data.method.advantages(trials)]
            if any(itertools.chain(*advantages)):
                figures["learned_groups"] += 1
                for one, own in zip(group, advantages, strict=True):
                    found += _sentences(one, own, agent) if any(own) else []
            if played.all_fail == "demonstration" and not any(trial.success for trial in trials):
                figures["demonstrations"] += 1
                found += _demonstration(group[0].task, agent)
        return found, figures


def _demonstration(task: str, agent: VlmAgent) -> list[Scored]:
    """The expert's trajectory in the form that the agent reads."""
    found = agent.sentences.sentences_of(task_at(task).demonstration(), swipe_targets=True, unwritable=False)
    for one in found:
        one.about = f"demonstration of {task}"
    return [Scored.of(one, DEMONSTRATION_WEIGHT) for one in found]


def _sentences(rollout: Rollout, advantages: Sequence[float], agent: VlmAgent) -> list[Scored]:
    prompts, kinds = [], []
    for prompt, action in replayed(rollout, agent):
        prompts.append(prompt.sentence)
        kinds.append(NO_ACTION if action is None else ACTION_NAMES.index(action.name))
    found = scored(prompts, rollout.answers, kinds, advantages)
    for one in found:
        one.sentence.about = f"{rollout.task} sample {rollout.sample}"
    return found


def _of_nothing(rollout: Rollout, agent: VlmAgent) -> Scored:
    """A sentence that nothing is learned of, for a row without another one: all ranks need one."""
    prompt, _ = next(replayed(rollout, agent))
    (found,) = scored([prompt.sentence], rollout.answers[:1], [NO_ACTION], [0.0])
    found.sentence.weights = [0.0] * len(found.sentence)
    return found


def acting_copy(engine: Engine, data: RolloutData) -> VlmAgent:
    """The agent as `act` would load it from a checkpoint: adapters merged, linear layers cast once. A copy, because the
    engine's model trains on."""
    model = copy.deepcopy(engine.model).eval().requires_grad_(False)
    if isinstance(model, PeftModel) and not is_quantised(model):
        model = merge_adapter(model)
    if engine.place.bf16:
        cast_linear_weights(model, torch.bfloat16)
    sentences = replace(data.sentences, screens=CachedScreens(data.sentences.screens))
    return VlmAgent(cast("PreTrainedModel", model), data.tokenizer, sentences, engine.place.bf16)


def digest_of(model: torch.nn.Module) -> str:
    """sha256 of the weights that train."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            digest.update(name.encode())
            digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@torch.no_grad()
def gap(engine: Engine, batch: dict[str, Any], row: Sequence[Scored]) -> float:
    """The mean |Δ log p| between the learner and the sampler over the sampled tokens of a row. NaN without any."""
    inputs = {name: value for name, value in batch.items() if name not in NOT_FOR_MODELS}
    with engine.precision():
        output = cast(Any, engine.model)(**on_device(inputs, engine.place.device))
    sampled = torch.tensor(
        [
            value
            for one in row
            for value, label in zip(one.log_probabilities, one.sentence.labels, strict=True)
            if label >= 0
        ]
    )
    return float((-output.token_losses.cpu() - sampled).abs().nanmean())


def refuse_idle_rounds(played: Round) -> None:
    """Raises TrainingError after `PATIENCE` rounds of these settings without anything to learn."""
    idle = itertools.takewhile(
        lambda one: one["settings"] == played.settings() and not any(map(one["figures"].get, LEARNED)),
        (one.scores() for one in itertools.chain([played], played.earlier())),
    )
    if len(list(itertools.islice(idle, PATIENCE))) == PATIENCE:
        raise TrainingError(
            f"the last {PATIENCE} rounds, to round {played.number + 1}, have no rollout with an advantage, so nothing "
            "is learned. Change reinforcement.temperature, samples or curriculum, or set reinforcement.all_fail to "
            "demonstration; then run the same command again to resume"
        )
