"""Merges an adapter into its base, and checks that the written checkpoint computes the same logits.

OUT/model/        a checkpoint with tokenizer; of a Qwen-VL also with a processor, for transformers and servers
OUT/tokenizer/    and OUT/recipe.yaml: with them, evaluation and `base` accept OUT as a run folder
OUT/merge.json    the comparison, and the SHA-256 of every file that decides an answer
OUT/episodes.parquet  the episodes that the run learned from
OUT/README.md     the model card, also in OUT/model/

The adapter is added to the weights of a float base. A quantised base is dequantised first, because its adapter was
trained on the dequantised weights: the result is as large as the original model. Quantising it again, or adding the
adapter to the original weights, would change the logits.

Both the run and the written checkpoint are computed in float32 for the comparison, whatever their dtype is. In
bfloat16 two correct computations of the same model differ by several percent of a logit, more with every layer, which
hides a wrong merge. In float32 only the weights differ: not at all for a float32 checkpoint, and for a bfloat16 one by
the rounding of the merged weights. The bound for that is the rounding of the run's own arithmetic.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from types import MethodType
from typing import cast

import torch
from accelerate.utils import send_to_device
from peft import PeftModel
from peft.utils.integrations import dequantize_module_weight
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vlm_agent.errors import UserError
from vlm_agent.files import atomic_folder, is_free, read_checked, write_checked
from vlm_agent.models.build import load, read_model_recipe, save
from vlm_agent.models.card.card import write_card
from vlm_agent.models.run_layout import DIGESTS, FINISHED, MERGED, MODEL_FOLDER, RECIPE_FILE, trained
from vlm_agent.models.weights.adapters import merge_adapter
from vlm_agent.models.weights.origin import copy_learned, read_sources
from vlm_agent.models.weights.precision import is_quantised_layer, model_device
from vlm_agent.recipe.run import read_recipe

TOLERANCE = 1e-4
"""The largest accepted relative difference of a logit of a float32 checkpoint: another order of sums."""

SHARE_OF_ROUNDING = 0.25
"""The largest accepted divergence of a bfloat16 checkpoint, as a share of what the run's own arithmetic causes.

Merging rounds each weight once, the run's arithmetic rounds every activation. Measured on SmolLM2-135M with adapters
of 0.05 to 3 % of their weights: 0.005 to 0.06.
"""

SHARE_OF_ADAPTER = 0.5
"""The largest accepted divergence of a bfloat16 checkpoint, as a share of what the adapter itself changes.

Without it, a merge that loses a small adapter would pass. Measured as above: 0.002 to 0.31 for adapters of 0.1 % and
more of their weights; the rounding of weights hides smaller ones.
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
class Divergences:
    """Mean Kullback–Leibler divergences, in nats, from the run computed in float32.

    `merged`: of the written checkpoint, computed in float32. `rounding`: of the run in its own arithmetic. `adapter`:
    of the base without the adapter, computed in float32.
    """

    merged: float
    rounding: float
    adapter: float


@dataclass(frozen=True)
class Merge:
    """The record of a merge: its run, the samples compared, and how far the checkpoint is from the run.

    `agreement` compares run and checkpoint, both computed in float32.
    """

    run: str
    samples: int
    dtype: str
    quantisation: str | None
    agreement: Agreement
    divergences: Divergences

    @property
    def objection(self) -> str | None:
        """Why the checkpoint is not what was trained; None if it is."""
        agreement, found = self.agreement, self.divergences
        if self.dtype == "float32":
            # Comparisons are negated, because NaN must be refused.
            if not agreement.max_relative <= TOLERANCE:
                return (
                    f"computes something else: logits differ by up to {agreement.max_relative:.2g} of the largest "
                    f"({agreement.max_absolute:.3g}), {TOLERANCE:g} is accepted in float32, and "
                    f"{agreement.same_choice} of {agreement.positions} tokens stay the same"
                )
            return None
        if not found.merged <= SHARE_OF_ROUNDING * found.rounding:
            return (
                f"computes something else: its divergence from the run is {found.merged:.2g} nats; "
                f"{SHARE_OF_ROUNDING:.0%} of what {self.dtype} arithmetic causes ({found.rounding:.2g}) is accepted"
            )
        if not found.merged <= SHARE_OF_ADAPTER * found.adapter:
            return (
                f"loses the adapter: its divergence from the run is {found.merged:.2g} nats, and the adapter itself "
                f"changes {found.adapter:.2g}; {self.dtype} cannot hold changes of weights as small as these"
            )
        return None


def merge_run(run: Path, output: Path, samples: Samples) -> Merge:
    """Writes `output` and compares its logits with `run`'s on samples. If they differ, it is kept as OUTPUT.refused.

    Raises MergeError if the logits differ, the run has no adapter, `output` or OUTPUT.refused is not empty, or no
    sample has a supervised token; FileNotFoundError for an unfinished run.
    """
    output = output.absolute()  # `.` has no name
    refused = output.parent / f"{output.name}.refused"
    for folder in (output, refused):
        if not is_free(folder):
            raise MergeError(f"{folder} holds something already; choose another output")
    model, tokenizer = load(run, device=model_device())  # the bits of a quantised base depend on the device
    if not isinstance(model, PeftModel):
        raise MergeError(f"{trained(run).weights} is a whole model, not an adapter: there is nothing to merge")
    recipe = read_model_recipe(run)
    batches = samples(model, tokenizer)
    # Beside bfloat16 weights, parts that were trained in full are float32, and only autocast computes with both.
    with torch.autocast(model_device().type, torch.bfloat16, enabled=recipe.dtype == "bfloat16"):
        own = _logits(model, batches)
    reference = _logits(model, batches, float32=True)
    if not len(reference):
        raise MergeError("no action is learned in these samples, so nothing can be compared; take others, or more")
    with model.disable_adapter():
        base = _logits(model, batches, float32=True)
    with atomic_folder(output) as folder:
        merged = merge_adapter(model.cpu()).to(getattr(torch, recipe.dtype))
        tokenizer.save_pretrained(folder / MODEL_FOLDER)
        save(merged, tokenizer, folder)
        shutil.copyfile(trained(run).recipe, folder / RECIPE_FILE)
        copy_learned(trained(run).run, folder)
        if (references := trained(run).references).is_file():
            shutil.copyfile(references, folder / references.name)
        del model, merged
        written, _ = load(folder)
        after = _logits(written, batches, float32=True)
        divergences = Divergences(*(divergence(reference, other) for other in (after, own, base)))
        agreement = compare(reference, after)
        merge = Merge(str(run), len(batches), recipe.dtype, recipe.quantisation, agreement, divergences)
        write_checked(folder / MERGED, asdict(merge) | {DIGESTS: trained(folder).digests}, indent=2)
        if merge.objection is not None:
            folder.replace(refused)
            raise MergeError(
                f"{run} merged {merge.objection}. {output} was not written; use the run as it is. {refused} keeps the "
                "checkpoint"
            )
        _write_card(folder, run, output, merge)
    return merge


def _write_card(folder: Path, run: Path, output: Path, merge: Merge) -> None:
    """The card of the run, of the merged weights in `folder`, which becomes `output`; without the run's scores, which
    are those of other weights."""
    of_run = trained(run)
    record = of_run.run / FINISHED
    write_card(
        folder,
        read_recipe(of_run.recipe),
        read_sources(of_run.run),
        read_checked(record, "train again") if record.is_file() else {},
        output.absolute().name,
        {
            "merged from": f"the adapter {of_run.run.absolute().name}",
            "divergence from the run": f"{merge.divergences.merged:.2g} nats on {merge.samples} episodes; "
            f"without the adapter {merge.divergences.adapter:.2g}",
        },
    )


def compare(before: torch.Tensor, after: torch.Tensor) -> Agreement:
    """Compares logits (positions, vocabulary) of two models; at least one position."""
    apart = (before - after).abs().amax(dim=-1)
    return Agreement(
        positions=len(before),
        max_absolute=apart.max().item(),
        max_relative=(apart / before.abs().amax(dim=-1)).max().item(),
        same_choice=int((before.argmax(-1) == after.argmax(-1)).sum()),
    )


def divergence(reference: torch.Tensor, other: torch.Tensor) -> float:
    """The Kullback–Leibler divergence of `other` from `reference` in nats, averaged over positions.

    Both are logits (positions, vocabulary). A mean over positions and over the distribution: unlike a maximum, it does
    not grow with the number of positions.
    """
    expected = reference.log_softmax(-1)
    apart = other.log_softmax(-1) - expected
    # Equal to -apart in the sum, as both distributions sum to 1; never negative, and exact for small differences.
    return (expected.exp() * (apart.expm1() - apart)).sum(-1).mean().item()


def _logits(model: PreTrainedModel | PeftModel, batches: Sequence[dict], float32: bool = False) -> torch.Tensor:
    """Float32 (positions, vocabulary) at the supervised positions of all batches; on a GPU if one is available.

    `float32`: also computed in float32.
    """
    device = model_device()
    module = cast("torch.nn.Module", model).to(device)
    there = (send_to_device(batch, device) for batch in batches)
    with float32_arithmetic(module) if float32 else nullcontext(), torch.inference_mode():
        return torch.cat([model(**batch).logits.float().cpu() for batch in there])


@contextmanager
def float32_arithmetic(model: nn.Module) -> Iterator[None]:
    """In the block, the model computes in float32 with the weights that it has, without their rounding of activations.

    Linear layers, nearly all of a large model, convert their weight at each call, dequantised if it is quantised: so
    the block needs the memory of one more layer, not of a second model. All other tensors are converted in place and
    back, which changes no bit.
    """
    linear = [module for module in model.modules() if type(module) is nn.Linear or is_quantised_layer(module)]
    by_call = {id(module) for module in linear}
    others = [module for module in model.modules() if id(module) not in by_call]
    own = (chain(module.parameters(recurse=False), module.buffers(recurse=False)) for module in others)
    tensors = {id(tensor): tensor for tensor in chain.from_iterable(own) if tensor.is_floating_point()}
    dtypes = [(tensor, tensor.dtype) for tensor in tensors.values()]
    forwards = [(module, vars(module).get("forward")) for module in linear]
    try:
        for tensor, _ in dtypes:
            tensor.data = tensor.data.float()
        for module in linear:
            vars(module)["forward"] = MethodType(_linear_in_float32, module)
        yield
    finally:
        for tensor, dtype in dtypes:
            tensor.data = tensor.data.to(dtype)
        for module, forward in forwards:
            del vars(module)["forward"]
            vars(module).update({} if forward is None else {"forward": forward})


def _linear_in_float32(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    bias = None if layer.bias is None else layer.bias.float()
    return functional.linear(x.float(), dequantize_module_weight(layer).float(), bias)
