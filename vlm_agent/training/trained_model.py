"""The model of a run before its first step: base weights, then adapters on the parts that train."""

from pathlib import Path
from typing import cast

import torch
from peft import PeftModel
from rich.console import Console
from torch import nn
from transformers import PreTrainedModel

from vlm_agent.models.build import build
from vlm_agent.models.run_layout import BASE_FOLDER
from vlm_agent.models.weights.adapters import choose_trained_weights, count_parameters, without_zero3_partitioning
from vlm_agent.models.weights.quantisation import quantise
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data.data_module import DataModule, unwritable_report
from vlm_agent.training.engine import Place
from vlm_agent.training.loop import ranks


def load_base(recipe: Recipe, data: DataModule, run: Path) -> PreTrainedModel:
    """The model before training. Random weights under an adapter are saved to RUN/base: no checkpoint holds them."""
    with without_zero3_partitioning(recipe.model.starts_random):
        base = build(recipe.model, data.tokenizer, recipe.action_language.build())
    data.complete(base.config)
    has_adapter = "lora" in recipe.model.train.model_dump().values()
    if ranks.number() == 0 and recipe.model.starts_random and has_adapter:
        base.save_pretrained(run / BASE_FOLDER)
    return base


def adapt(base: PreTrainedModel, recipe: Recipe, place: Place) -> PreTrainedModel | PeftModel:
    """The base, quantised where the recipe asks for it, with adapters; each part trains as `model.train` states.

    DeepSpeed has no autocast: what trains has the dtype of what it reads.
    """
    if recipe.model.quantisation is not None:
        on_device = cast(nn.Module, base).to(place.device)  # quantising 7 B weights on a CPU would take minutes
        base = cast(PreTrainedModel, quantise(on_device, recipe.model.quantisation))
    in_bf16 = recipe.training.deepspeed is not None and place.bf16
    dtype = torch.bfloat16 if in_bf16 else torch.float32
    model = choose_trained_weights(base, recipe.model.train, recipe.model.lora, dtype)
    if recipe.training.gradient_checkpointing:
        model.activation_checkpointing_enable()
    model.config.use_cache = False
    return model


def total_parameters(model: nn.Module) -> dict[str, int]:
    """{"trained", "frozen"}: of all parts."""
    parts = count_parameters(model).values()
    return {state: sum(counts[state] for counts in parts) for state in ("trained", "frozen")}


def describe(console: Console, model: nn.Module, data: DataModule) -> None:
    """Prints the size of the run, and of each part of the model."""
    console.print(f"{data.recipe.output}: {data.reads}; {data.steps} steps of {data.rows_per_step} rows")
    if (unwritable := data.unwritable_actions).count:
        console.print(unwritable_report(unwritable), highlight=False, markup=False, soft_wrap=True)
    for note in data.notes:
        console.print(note.text, highlight=False, markup=False, soft_wrap=True)
    for part, counts in count_parameters(model).items():
        console.print(f"  {part:15} {counts['trained']:>13,} trained  {counts['frozen']:>13,} frozen", highlight=False)
