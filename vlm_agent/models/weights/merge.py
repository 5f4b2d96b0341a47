"""Merges an adapter into its base, and checks that the written checkpoint computes the same logits.

OUT/model/        a checkpoint with tokenizer; transformers' own classes load a Qwen-VL from it
OUT/tokenizer/    and OUT/recipe.yaml: with them, evaluation and `base` accept OUT as a run folder
OUT/merge.json    the comparison

The adapter is added to the weights of a float base. A quantised base is dequantised first, because its adapter was
trained on the dequantised weights: the result is as large as the original model. Quantising it again, or adding the
adapter to the original weights, would change the logits.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import torch
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.errors import UserError
from vlm_agent.files import atomic_folder, is_free
from vlm_agent.models.build import load, read_model_recipe, save
from vlm_agent.models.run_layout import MODEL_FOLDER, RECIPE_FILE, trained
from vlm_agent.models.weights.adapters import merge_adapter

MERGE_FILE = "merge.json"
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05, "int8": 0.1}
"""The largest accepted relative difference of a logit, by arithmetic.

float32: another order of sums. bfloat16: merged weights and activations are rounded to 8 significant bits. int8: the
quantised base also rounds activations, which the merged model does not.
"""

Samples = Callable[[PreTrainedModel | PeftModel, PreTrainedTokenizerBase], Sequence[dict]]
"""(model, tokenizer) → batches, keyword arguments of the model's forward, labels included."""


class MergeError(UserError):
    """A merge that is impossible or whose logits differ; the message names a remedy."""


@dataclass(frozen=True)
class Agreement:
    """The difference of two models' logits at `positions` supervised tokens.

    `max_absolute`: the largest difference of a logit. `max_relative`: the largest, over positions, of the difference
    divided by the largest logit. `same_choice`: the number of positions with the same most likely token.
    """

    positions: int
    max_absolute: float
    max_relative: float
    same_choice: int


@dataclass(frozen=True)
class Merge:
    """The record of a merge: its run, the samples compared, the tolerance and the agreement."""

    run: str
    samples: int
    arithmetic: str
    quantisation: str | None
    tolerance: float
    agreement: Agreement


def merge_run(run: Path, output: Path, samples: Samples) -> Merge:
    """Writes `output`, compares its logits with `run`'s on samples, and keeps it only if they agree.

    Raises MergeError if the run has no adapter, `output` is not empty, no sample has a supervised token, or the logits
    differ by more than `TOLERANCES`; FileNotFoundError for an unfinished run.
    """
    _check_free(output)
    model, tokenizer = load(run)
    if not isinstance(model, PeftModel):
        raise MergeError(f"{trained(run).weights} is a whole model, not an adapter: there is nothing to merge")
    recipe = read_model_recipe(run)
    batches = samples(model, tokenizer)
    before = _logits(model, batches)
    with atomic_folder(output) as folder:
        merged = merge_adapter(model.cpu()).to(getattr(torch, recipe.dtype))
        save(merged, tokenizer, folder)
        tokenizer.save_pretrained(folder / MODEL_FOLDER)
        shutil.copyfile(trained(run).recipe, folder / RECIPE_FILE)
        del model, merged
        written, _ = load(folder)
        arithmetic = "int8" if recipe.quantisation == "int8" else recipe.dtype
        agreement = compare(before, _logits(written, batches))
        merge = Merge(str(run), len(batches), arithmetic, recipe.quantisation, TOLERANCES[arithmetic], agreement)
        _check_agreement(merge, output)
        (folder / MERGE_FILE).write_text(json.dumps(asdict(merge), indent=2) + "\n", encoding="utf-8")
    return merge


def _check_free(output: Path) -> None:
    if not is_free(output):
        raise MergeError(f"{output} holds something already; choose another output, or remove it")


def _logits(model: PreTrainedModel | PeftModel, batches: Sequence[dict]) -> torch.Tensor:
    """Float32 (positions, vocabulary) at the supervised positions of all batches; on a GPU if one is available."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cast("torch.nn.Module", model).to(device)
    there = ({name: value.to(device) for name, value in batch.items()} for batch in batches)
    with torch.inference_mode():
        return torch.cat([model(**batch).logits.float().cpu() for batch in there])


def compare(before: torch.Tensor, after: torch.Tensor) -> Agreement:
    """Compares logits (positions, vocabulary) of two models. Raises MergeError for zero positions."""
    if not len(before):
        raise MergeError("no action is learned in these samples, so nothing can be compared; take others, or more")
    apart = (before - after).abs().amax(dim=-1)
    return Agreement(
        positions=len(before),
        max_absolute=apart.max().item(),
        max_relative=(apart / before.abs().amax(dim=-1)).max().item(),
        same_choice=int((before.argmax(-1) == after.argmax(-1)).sum()),
    )


def _check_agreement(merge: Merge, output: Path) -> None:
    agreement = merge.agreement
    if not agreement.max_relative <= merge.tolerance:  # also True for NaN
        raise MergeError(
            f"{merge.run} merged computes something else: logits differ by up to {agreement.max_relative:.2g} of the "
            f"largest ({agreement.max_absolute:.3g}), {merge.tolerance:g} is accepted in {merge.arithmetic}, and "
            f"{agreement.same_choice} of {agreement.positions} tokens stay the same. {output} was not written; "
            "use the run as it is"
        )
