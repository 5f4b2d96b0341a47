"""Which weights train: parts frozen, adapted by LoRA, or trained in full; and saving exactly those."""

from pathlib import Path

from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from safetensors import safe_open
from torch import nn

from vlm_agent.models.llama_vit import PARTS, LlamaViT
from vlm_agent.models.recipe import Lora, TrainedParts

ADAPTER_WEIGHTS = "adapter_model.safetensors"


def choose_trained_weights(model: LlamaViT, train: TrainedParts, lora: Lora) -> LlamaViT | PeftModel:
    """Freeze, adapt and free the parts as told; what trains is float32, whatever the rest is.

    With any part on `lora` the result is a PeftModel whose adapter also saves every part trained in full
    (`modules_to_save`).

    Raises ValueError for a part that has nothing to adapt, and for embeddings and head told apart that are one matrix.
    """
    _check_tied(model, train)
    adapted = [part for part in PARTS if getattr(train, part) == "lora"]
    full = [PARTS[part] for part in PARTS if getattr(train, part) == "full"]
    model.requires_grad_(False)
    if adapted:
        config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=[name for part in adapted for name in _adaptable(model, PARTS[part])],
            modules_to_save=[name for path in full for name in _callable(model, path)],
        )
        model = get_peft_model(model, config)
    else:
        for path in full:
            model.get_submodule(path).requires_grad_(True)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()  # small updates vanish in bfloat16's eight bits
    return model


def _check_tied(model: LlamaViT, train: TrainedParts) -> None:
    if not model.config.text_config.tie_word_embeddings or train.embeddings == train.head == "frozen":
        return
    if (train.embeddings, train.head, train.language_model) != ("full", "full", "full"):
        raise ValueError(
            "this language model's embeddings and head are one matrix: freeze both, or train embeddings, head and "
            "language_model in full"
        )


def _callable(model: LlamaViT, path: str) -> list[str]:
    """The part itself; the layers of one that is a list of layers, which peft cannot wrap as a whole."""
    module = model.get_submodule(path)
    return [f"{path}.{name}" for name, _ in module.named_children()] if isinstance(module, nn.ModuleList) else [path]


def _adaptable(model: LlamaViT, path: str) -> list[str]:
    """Full names of the linear layers and embeddings of a part."""
    names = [
        f"{path}.{name}" if name else path
        for name, module in model.get_submodule(path).named_modules()
        if isinstance(module, (nn.Linear, nn.Embedding))
    ]
    if not names:
        raise ValueError(
            f"{path} has no linear layer, so there is nothing for LoRA to adapt; freeze it or train it full"
        )
    return names


def save_trained_weights(model: LlamaViT | PeftModel, folder: Path) -> None:
    """The adapter of a PeftModel, the whole of any other model; safetensors only."""
    model.save_pretrained(folder)


def load_adapter(base: LlamaViT, folder: Path, projector_in_base: bool = False) -> PeftModel:
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
    if not projector_in_base and not any(".projector." in key for key in present):
        raise ValueError(f"{path} has no projector; its language model could not read a screen")
    for module in saved:
        base.get_submodule(module).float()  # as it was trained; peft would round it to the base's dtype
    return PeftModel.from_pretrained(base, folder)


def count_parameters(model: nn.Module) -> dict[str, dict[str, int]]:
    """Trained and frozen parameters by part; LoRA's count to the part they adapt."""
    counts = {part: {"trained": 0, "frozen": 0} for part in PARTS}
    for name, parameter in model.named_parameters():
        part = next(part for part, path in PARTS.items() if f".{path}." in f".{name}")
        counts[part]["trained" if parameter.requires_grad else "frozen"] += parameter.numel()
    return counts
