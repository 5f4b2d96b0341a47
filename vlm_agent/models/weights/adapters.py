"""Chooses the weights that train (parts frozen, adapted by LoRA or trained in full), and saves and loads them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel
from transformers.integrations import deepspeed as integration

from vlm_agent.errors import CheckpointError, RecipeError
from vlm_agent.files import atomic_write, share_as_created
from vlm_agent.files.weight_files import check_folder
from vlm_agent.models.run_layout import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from vlm_agent.models.weights.lora_layers import fuse_lora
from vlm_agent.models.weights.precision import is_quantised, weight_count
from vlm_agent.models.weights.quantisation import dequantise
from vlm_agent.recipe.model import Lora, TrainedParts

SHARD_SIZE = "4GB"


def parts_of(model: nn.Module | type[nn.Module]) -> dict[str, str]:
    """The module path of each part that a recipe freezes, adapts or trains in full; of a family's model or a PeftModel
    around one."""
    return cast("dict[str, str]", getattr(model, "parts"))  # noqa: B009 (no attribute of every module)


def choose_trained_weights(
    model: PreTrainedModel, train: TrainedParts, lora: Lora, dtype: torch.dtype = torch.float32
) -> PreTrainedModel | PeftModel:
    """Freezes, adapts or trains each part as `train` says. Trained weights are in `dtype`, whatever the others are.

    Without float32, updates are lost: bfloat16 has 8 significant bits. DeepSpeed's optimiser updates its own float32
    copies, and the weights of its model are in the dtype of the run.

    If a part is `lora`, the result is a PeftModel whose adapter also saves every part trained in full
    (`modules_to_save`). Before training, its logits equal those of `model`.

    Raises RecipeError for a part without layers to adapt or that the model does not have, for tied embeddings and head
    that are trained differently, and for a quantised language model without an adapter.
    """
    if absent := [part for part, training in train if training == "lora" and part not in parts_of(model)]:
        raise RecipeError(f"train.{absent[0]} is lora, and this model has no {absent[0]} to adapt; remove it")
    _check_tied(model, train)
    if is_quantised(model) and train.language_model != "lora":
        raise RecipeError(
            f"a quantised language model can only be trained by an adapter, and train.language_model is "
            f"{train.language_model}: set it to lora, or remove model.quantisation"
        )
    adapted = [part for part in parts_of(model) if getattr(train, part) == "lora"]
    full = [part for part in parts_of(model) if getattr(train, part) == "full"]
    model.requires_grad_(False)
    chosen: PreTrainedModel | PeftModel = model
    if adapted:
        config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            use_dora=lora.dora,
            use_rslora=lora.rslora,
            target_modules=[name for part in adapted for name in _adaptable(model, part)],
            modules_to_save=[name for part in full for name in _callable(model, parts_of(model)[part])],
        )
        chosen = cast("PeftModel", get_peft_model(model, config))
        fuse_lora(chosen)
    else:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(_part_of(name, parts_of(model)) in full)
    for parameter in chosen.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
    return chosen


def _check_tied(model: PreTrainedModel, train: TrainedParts) -> None:
    is_tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    if not is_tied or train.embeddings == train.head == "frozen":
        return
    if train.has_adapter or (train.embeddings, train.head, train.language_model) != ("full", "full", "full"):
        raise RecipeError(
            "this language model's embeddings and head are one matrix, and an adapter would save two: freeze both, or "
            "train embeddings, head and language_model in full and no part by lora"
        )


def _part_of(name: str, parts: dict[str, str]) -> str:
    """The part of a weight or layer: the innermost whose path is in its name."""
    holding = [part for part, path in parts.items() if f".{path}." in f".{name}."]
    return max(holding, key=lambda part: len(parts[part]))


def _callable(model: PreTrainedModel, path: str) -> list[str]:
    """The modules that peft wraps for a part: the part itself, or its children if it is a list of layers or contains
    another part."""
    module = model.get_submodule(path)
    others = [other for other in parts_of(model).values() if other != path]
    if not isinstance(module, nn.ModuleList) and not any(other.startswith(f"{path}.") for other in others):
        return [path]
    if any(True for _ in module.parameters(recurse=False)):
        raise RecipeError(f"{path} has weights of its own around another part; it cannot be trained beside an adapter")
    children = [f"{path}.{name}" for name, _ in module.named_children()]
    return [name for child in children if child not in others for name in _callable(model, child)]


def _adaptable(model: PreTrainedModel, part: str) -> list[str]:
    """Full names of the linear layers and embeddings of a part."""
    names = [
        name
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, nn.Embedding)) and _part_of(name, parts_of(model)) == part
    ]
    if not names:
        raise RecipeError(
            f"{parts_of(model)[part]} has no linear layer, so there is nothing for LoRA to adapt; freeze it or train "
            "it full"
        )
    return names


def save_trained_weights(
    model: PreTrainedModel | PeftModel,
    folder: Path,
    state: dict[str, torch.Tensor] | None = None,
    base: str | None = None,
) -> None:
    """The adapter of a PeftModel, the whole of any other model; safetensors only, in files of `SHARD_SIZE`.

    `state`: weights in place of the model's own (`state_for_saving`). `base`: the name on the hub of the model
    under an adapter; None: the name that it was loaded by, unless that is a folder, which exists on this machine alone.
    """
    if isinstance(model, PeftModel):
        # Not "auto": beside an adapter of the head, peft would also save the head, and ask the hub for the base.
        model.save_pretrained(str(folder), state_dict=state, save_embedding_layers=False)
        name_base(folder, base)
    else:
        model.save_pretrained(folder, max_shard_size=SHARD_SIZE, state_dict=state)
    for file in folder.glob("*.safetensors"):
        share_as_created(file)


def name_base(folder: Path, base: str | None) -> None:
    """Writes the name of the base into the configuration of the adapter in `folder`; "" in place of a local folder."""
    path = folder / ADAPTER_CONFIG
    content = json.loads(path.read_text(encoding="utf-8"))
    loaded = content["base_model_name_or_path"] or ""
    content["base_model_name_or_path"] = base or ("" if Path(loaded).exists() else loaded)
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, sort_keys=True), encoding="utf-8")


def load_adapter(base: PreTrainedModel, folder: Path, projector_in_base: bool = False) -> PeftModel:
    """The base with a frozen adapter. `projector_in_base`: the projector of the base is trained.

    Raises CheckpointError if a file is damaged, or the adapter lacks a part that its configuration lists, or the
    projector: peft would leave that part at its random initial weights without a warning.
    """
    path = folder / ADAPTER_WEIGHTS
    check_folder(folder)
    with safe_open(path, framework="pt") as weights:
        present = set(weights.keys())
    with _explain_misfit(folder):
        saved = LoraConfig.from_pretrained(str(folder)).modules_to_save or []
        kept = [f"{module}.{name}" for module in saved for name in base.get_submodule(module).state_dict()]
    for name in kept:
        if f"base_model.model.{name}" not in present:
            raise CheckpointError(f"{path} lacks {name}, which its configuration says it saves")
    projector = parts_of(base).get("projector")
    if projector is not None and not projector_in_base and not any(f".{projector}." in key for key in present):
        raise CheckpointError(f"{path} has no projector; its language model could not read a screen")
    for module in saved:
        base.get_submodule(module).float()  # the dtype it was trained in; peft would round it to the base's
    with _explain_misfit(folder):
        model = PeftModel.from_pretrained(base, folder)
    expected = set(get_peft_model_state_dict(model, save_embedding_layers=False))
    if other := sorted(expected ^ present):
        state = "lacks" if other[0] in expected else "has a weight that the model does not read,"
        raise CheckpointError(
            f"{path} {state} {other[0]}: it does not fit {ADAPTER_CONFIG} beside it, or this base; copy the run again"
        )
    fuse_lora(model)
    return model


@contextmanager
def _explain_misfit(folder: Path) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, RuntimeError) and "size mismatch" not in str(error):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
        raise CheckpointError(
            f"the adapter in {folder} does not fit its base, or {ADAPTER_CONFIG} is damaged: {reason}"
        ) from None


def merge_adapter(model: PeftModel) -> PreTrainedModel:
    """The base with the adapter added to its weights; `model` cannot be used afterwards.

    A quantised base is dequantised: quantising the sum would round the adapter away, and the original weights are not
    those that the adapter was trained on.
    """
    if not is_quantised(model):
        return cast("PreTrainedModel", model.merge_and_unload())
    config = cast("LoraConfig", model.peft_config["default"])
    weights = get_peft_model_state_dict(model, save_embedding_layers=False)
    base = cast("PreTrainedModel", dequantise(model.unload()))  # with the parts that were trained in full
    config.modules_to_save = None
    plain = get_peft_model(base, config)
    set_peft_model_state_dict(plain, {name: value for name, value in weights.items() if "lora_" in name})
    return cast("PreTrainedModel", plain.merge_and_unload())


def without_adapter(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The base model inside a PeftModel; the adapter's layers stay in it and stay active."""
    return cast("PreTrainedModel", model.get_base_model()) if isinstance(model, PeftModel) else model


def count_parameters(model: nn.Module) -> dict[str, dict[str, int]]:
    """Trained and frozen parameters by part. LoRA's count in the part they adapt, quantised weights as before
    quantisation."""
    counts = {part: {"trained": 0, "frozen": 0} for part in parts_of(model)}
    for name, parameter in model.named_parameters():
        if ".original_module." in name:  # peft's unused copy of a part trained in full
            continue
        state = "trained" if parameter.requires_grad else "frozen"
        counts[_part_of(name, parts_of(model))][state] += weight_count(parameter)
    return counts


# Loading and saving under DeepSpeed's ZeRO. ZeRO-3 partitions every weight over the ranks. Weights of a checkpoint are
# partitioned at loading, so that a model may be larger than one GPU. Random weights are created whole, so that every
# rank draws the same ones, and are partitioned when training starts. With mixed precision ZeRO-2 and ZeRO-3 train
# bfloat16 weights and partition float32 copies of them, which the optimiser updates.


@contextmanager
def without_zero3_partitioning(is_wanted: bool) -> Iterator[None]:
    """If `is_wanted`, models created inside are whole on every rank."""
    reference = integration._hf_deepspeed_config_weak_ref
    config = None if reference is None else reference()
    if not is_wanted or config is None:
        yield
        return
    integration.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        integration.set_hf_deepspeed_config(config)


def state_for_saving(model: nn.Module, keep: bool) -> dict[str, torch.Tensor] | None:
    """The state dict that `adapters.save_trained_weights` writes, in main memory; None where DeepSpeed shards nothing.

    Trained weights are the optimiser's float32 copies: with bfloat16 the model holds only rounded ones. Frozen weights
    keep their dtype; those under an adapter are left out. One weight at a time is whole on a GPU, because a model that
    needs ZeRO-3 does not fit there. A collective: all ranks must call it. Those without `keep` get an empty one.
    """
    sharded = [parameter for parameter in model.parameters() if _is_sharded(parameter)]
    if not sharded:
        return None
    state: dict[str, torch.Tensor] = {}
    whole: dict[int, torch.Tensor] = {}  # tied weights have two names
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, nn.Parameter) and isinstance(model, PeftModel) and not value.requires_grad:
            continue
        if id(value) not in whole:
            whole[id(value)] = _whole(value, keep)
        state[name] = whole[id(value)]
    return state if keep else {}


def _is_sharded(parameter: nn.Parameter) -> bool:
    """Whether ZeRO-3 partitions it, or ZeRO-2 its float32 copy."""
    return hasattr(parameter, "ds_id") or hasattr(parameter, "_hp_mapping")


def _whole(value: Any, keep: bool) -> Any:
    """A copy in main memory; without `keep` none, after the same collectives."""
    if not isinstance(value, nn.Parameter) or not _is_sharded(value):
        if not keep:
            return None
        return value.detach().cpu() if isinstance(value, torch.Tensor) else value
    from deepspeed import zero  # takes seconds to import
    from deepspeed.utils import safe_get_full_fp32_param

    if value.requires_grad:
        copy = safe_get_full_fp32_param(value)
        return copy.cpu() if keep else torch.empty(0)
    with zero.GatheredParameters([value]):
        return value.detach().to("cpu", copy=True) if keep else torch.empty(0)
