"""Which weights train: parts frozen, adapted by LoRA, or trained in full; and saving exactly those."""

from pathlib import Path

from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel

from vlm_agent.models.quantisation import dequantise, is_quantised, weight_count
from vlm_agent.models.recipe import Lora, TrainedParts

ADAPTER_WEIGHTS = "adapter_model.safetensors"
SHARD_SIZE = "4GB"


def choose_trained_weights(model: PreTrainedModel, train: TrainedParts, lora: Lora) -> PreTrainedModel | PeftModel:
    """Freeze, adapt and free the parts as told; what trains is float32, whatever the rest is.

    With any part on `lora` the result is a PeftModel whose adapter also saves every part trained in full
    (`modules_to_save`). The logits are those of `model` until something is trained.

    Raises ValueError for a part that has nothing to adapt, for embeddings and head told apart that are one matrix, and
    for a quantised language model without an adapter.
    """
    _check_tied(model, train)
    if is_quantised(model) and train.language_model != "lora":
        raise ValueError(
            f"a quantised language model can only be trained by an adapter, and train.language_model is "
            f"{train.language_model}: set it to lora, or remove model.quantisation"
        )
    adapted = [part for part in model.parts if getattr(train, part) == "lora"]
    full = [part for part in model.parts if getattr(train, part) == "full"]
    model.requires_grad_(False)
    if adapted:
        config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            use_dora=lora.dora,
            use_rslora=lora.rslora,
            target_modules=[name for part in adapted for name in _adaptable(model, part)],
            modules_to_save=[name for part in full for name in _callable(model, model.parts[part])],
        )
        model = get_peft_model(model, config)
    else:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(_part_of(name, model.parts) in full)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()  # small updates vanish in bfloat16's eight bits
    return model


def _check_tied(model: PreTrainedModel, train: TrainedParts) -> None:
    if not _is_tied(model) or train.embeddings == train.head == "frozen":
        return
    if (train.embeddings, train.head, train.language_model) != ("full", "full", "full"):
        raise ValueError(
            "this language model's embeddings and head are one matrix: freeze both, or train embeddings, head and "
            "language_model in full"
        )


def _is_tied(model: PreTrainedModel) -> bool:
    return model.get_input_embeddings().weight is model.get_output_embeddings().weight


def _part_of(name: str, parts: dict[str, str]) -> str:
    """The part that a weight or layer belongs to: the innermost whose path its name holds."""
    holding = [part for part, path in parts.items() if f".{path}." in f".{name}."]
    return max(holding, key=lambda part: len(parts[part]))


def _callable(model: PreTrainedModel, path: str) -> list[str]:
    """The part itself; what it consists of where peft cannot wrap it as a whole: a list of layers, or a part around
    another part."""
    module = model.get_submodule(path)
    others = [other for other in model.parts.values() if other != path]
    if not isinstance(module, nn.ModuleList) and not any(other.startswith(f"{path}.") for other in others):
        return [path]
    if any(True for _ in module.parameters(recurse=False)):
        raise ValueError(f"{path} has weights of its own around another part; it cannot be trained beside an adapter")
    children = [f"{path}.{name}" for name, _ in module.named_children()]
    return [name for child in children if child not in others for name in _callable(model, child)]


def _adaptable(model: PreTrainedModel, part: str) -> list[str]:
    """Full names of the linear layers and embeddings of a part."""
    names = [
        name
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, nn.Embedding)) and _part_of(name, model.parts) == part
    ]
    if not names:
        raise ValueError(
            f"{model.parts[part]} has no linear layer, so there is nothing for LoRA to adapt; freeze it or train it "
            "full"
        )
    return names


def save_trained_weights(model: PreTrainedModel | PeftModel, folder: Path) -> None:
    """The adapter of a PeftModel, the whole of any other model; safetensors only, in files of `SHARD_SIZE`."""
    model.save_pretrained(folder, **{} if isinstance(model, PeftModel) else {"max_shard_size": SHARD_SIZE})


def load_adapter(base: PreTrainedModel, folder: Path, projector_in_base: bool = False) -> PeftModel:
    """An adapter upon its base, frozen for use. `projector_in_base`: the base brings a trained one.

    Raises ValueError when the adapter was to bring a part (the projection, above all) and does not: peft itself would
    leave that part at its random start and say nothing.
    """
    path = folder / ADAPTER_WEIGHTS
    with safe_open(path, framework="pt") as weights:
        present = set(weights.keys())
    saved = PeftConfig.from_pretrained(folder).modules_to_save or []
    for module in saved:
        for name in base.get_submodule(module).state_dict():
            if f"base_model.model.{module}.{name}" not in present:
                raise ValueError(f"{path} lacks {module}.{name}, which its configuration says it saves")
    if not projector_in_base and not any(f".{base.parts['projector']}." in key for key in present):
        raise ValueError(f"{path} has no projector; its language model could not read a screen")
    for module in saved:
        base.get_submodule(module).float()  # as it was trained; peft would round it to the base's dtype
    return PeftModel.from_pretrained(base, folder)


def merge_adapter(model: PeftModel) -> PreTrainedModel:
    """The base with the adapter folded in; the model given is used up.

    A quantised base becomes an ordinary one, of the weights it computed with: the sum would be rounded away in a few
    bits, and the weights that were quantised are not those the adapter was trained upon.
    """
    if not is_quantised(model):
        return model.merge_and_unload()
    config = model.peft_config["default"]
    weights = get_peft_model_state_dict(model, save_embedding_layers=False)
    base = dequantise(model.unload())  # with the parts that were trained in full
    config.modules_to_save = None
    plain = get_peft_model(base, config)
    set_peft_model_state_dict(plain, {name: value for name, value in weights.items() if "lora_" in name})
    return plain.merge_and_unload()


def without_adapter(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The model that an adapter is upon; the adapter's layers are part of it and go on working."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


def count_parameters(model: nn.Module) -> dict[str, dict[str, int]]:
    """Trained and frozen parameters by part; LoRA's count to the part they adapt, quantised weights as what they were
    before."""
    counts = {part: {"trained": 0, "frozen": 0} for part in model.parts}
    for name, parameter in model.named_parameters():
        if ".original_module." in name:  # peft's spare copy of what trains in full
            continue
        state = "trained" if parameter.requires_grad else "frozen"
        counts[_part_of(name, model.parts)][state] += weight_count(parameter)
    return counts
