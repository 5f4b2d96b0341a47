"""An adapter folded into its base, and the proof that the checkpoint written computes the same.

OUT/model/        an ordinary checkpoint, tokenizer included; transformers' own classes load a Qwen-VL from here
OUT/tokenizer/    OUT/recipe.yaml: with these, OUT is what a run folder is to evaluation and to `base`
OUT/merge.json    what was compared, and how far it was apart

A float base gets the adapter added to its weights. A quantised one is dequantised first, since its adapter was trained
upon those weights: the result is as large as the model was before it was quantised, and quantised again, or added to
the weights that never were, it would compute something else.
"""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.datasets import PARTIAL
from vlm_agent.models.adapters import merge_adapter
from vlm_agent.models.build import load, read_model_recipe, save
from vlm_agent.models.trained import MODEL_FOLDER, RECIPE_FILE, trained

MERGE_FILE = "merge.json"
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05, "int8": 0.1}
"""The largest relative difference of a logit that is accepted, by what computes it.

float32: sums in another order. bfloat16: the merged weights and every layer's result are rounded to eight bits. int8:
the quantised base also rounds the activations between its layers, which the merged model does not.
"""

Samples = Callable[[PreTrainedModel | PeftModel, PreTrainedTokenizerBase], Sequence[dict]]
"""What the forward pass of this model takes, labels included."""


class MergeError(ValueError):
    """A merge that cannot be made or must not be trusted, with what to do."""


@dataclass(frozen=True)
class Agreement:
    """Two models' logits at `positions` supervised tokens.

    `max_absolute`: the largest difference of a logit. `max_relative`: the largest, over positions, of the difference
    beside the largest logit there. `same_choice`: at how many positions both have the same most likely token.
    """

    positions: int
    max_absolute: float
    max_relative: float
    same_choice: int


@dataclass(frozen=True)
class Merge:
    """What was made: from which run, compared on how many samples, by which tolerance."""

    run: str
    samples: int
    arithmetic: str
    quantisation: str | None
    tolerance: float
    agreement: Agreement


def merge_run(run: Path, output: Path, samples: Samples) -> Merge:
    """Writes `output`, compares it with `run` on samples, and keeps it only if they agree.

    Raises MergeError where the run has no adapter, `output` holds something, there is nothing to compare, or the logits
    differ by more than `TOLERANCES`; FileNotFoundError for an unfinished run.
    """
    _check_free(output)
    model, tokenizer = load(run)
    if not isinstance(model, PeftModel):
        raise MergeError(f"{trained(run).weights} is a whole model, not an adapter: there is nothing to merge")
    recipe = read_model_recipe(run)
    batches = samples(model, tokenizer)
    before = _logits(model, batches)
    with _written_whole(output) as folder:
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
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise MergeError(f"{output} holds something already; choose another output, or remove it")


def _logits(model: PreTrainedModel | PeftModel, batches: Sequence[dict]) -> torch.Tensor:
    """Float32 (positions, vocabulary), at the supervised positions of all batches; on a GPU where there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device)
    there = ({name: value.to(device) for name, value in batch.items()} for batch in batches)
    with torch.inference_mode():
        return torch.cat([model(**batch).logits.float().cpu() for batch in there])


def compare(before: torch.Tensor, after: torch.Tensor) -> Agreement:
    """Logits (positions, vocabulary) of two models. Raises MergeError where there is no position."""
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
    if not agreement.max_relative <= merge.tolerance:  # NaN is no agreement either
        raise MergeError(
            f"{merge.run} merged computes something else: logits differ by up to {agreement.max_relative:.2g} of the "
            f"largest ({agreement.max_absolute:.3g}), {merge.tolerance:g} is accepted in {merge.arithmetic}, and "
            f"{agreement.same_choice} of {agreement.positions} tokens stay the same. {output} was not written; "
            "use the run as it is"
        )


@contextmanager
def _written_whole(output: Path) -> Iterator[Path]:
    """A folder beside `output` that becomes it when the block ends well, and is removed otherwise."""
    output.parent.mkdir(parents=True, exist_ok=True)
    folder = output.with_name(f".{output.name}.{secrets.token_hex(4)}{PARTIAL}")
    folder.mkdir()
    try:
        yield folder
        for path in folder.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        folder.replace(output)
    except BaseException:
        shutil.rmtree(folder)
        raise
