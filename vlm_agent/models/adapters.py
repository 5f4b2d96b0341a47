"""Which weights train: parts frozen, adapted by LoRA, or trained in full; and saving exactly those."""

from pathlib import Path

from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from torch import nn

from vlm_agent.models.llama_vit import PARTS, LlamaViT
from vlm_agent.models.recipe import Lora, TrainedParts

ADAPTER_WEIGHTS = "adapter_model.safetensors"


def choose_trained_weights(model: LlamaViT, train: TrainedParts, lora: Lora) -> LlamaViT | PeftModel:
    """Freeze, adapt and free the parts as told. With any part on `lora` the result is a PeftModel whose adapter also
    saves every part trained in full (`modules_to_save`)."""
    adapted = [part for part in PARTS if getattr(train, part) == "lora"]
    full = [PARTS[part] for part in PARTS if getattr(train, part) == "full"]
    if adapted:
        config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=[name for part in adapted for name in _adaptable(model, PARTS[part])],
            modules_to_save=full,
        )
        return get_peft_model(model, config)
    model.requires_grad_(False)
    for path in full:
        model.get_submodule(path).requires_grad_(True)
    return model


def _adaptable(model: LlamaViT, path: str) -> list[str]:
    """Full names of the linear layers and embeddings of a part."""
    names = [
        f"{path}.{name}" if name else path
        for name, module in model.get_submodule(path).named_modules()
        if isinstance(module, (nn.Linear, nn.Embedding))
    ]
    if not names:
        raise ValueError(f"{path} has no linear layer, so there is nothing for LoRA to adapt; freeze it or train it full")
    return names


def save_trained_weights(model: LlamaViT | PeftModel, folder: Path) -> None:
    """The adapter of a PeftModel, the whole of any other model; safetensors only."""
    model.save_pretrained(folder)


def load_adapter(base: LlamaViT, folder: Path) -> PeftModel:
    """An adapter upon its base, frozen for use.

    Raises ValueError when the adapter was to bring a part (the projection, above all) and does not: peft itself would
    leave that part at its random start and say nothing.
    """
    with safe_open(folder / ADAPTER_WEIGHTS, framework="pt") as weights:
        present = list(weights.keys())
    model = PeftModel.from_pretrained(base, folder)
    for module in model.peft_config["default"].modules_to_save or []:
        if not any(f".{module}." in key for key in present):
            raise ValueError(f"{folder / ADAPTER_WEIGHTS} lacks {module}, which its configuration says it saves")
    if not any(".projector." in key for key in present):
        raise ValueError(f"{folder / ADAPTER_WEIGHTS} has no projector; its language model could not read a screen")
    return model


def count_parameters(model: nn.Module) -> dict[str, dict[str, int]]:
    """Trained and frozen parameters by part; LoRA's count to the part they adapt."""
    counts = {part: {"trained": 0, "frozen": 0} for part in PARTS}
    for name, parameter in model.named_parameters():
        part = next(part for part, path in PARTS.items() if f".{path}." in f".{name}")
        counts[part]["trained" if parameter.requires_grad else "frozen"] += parameter.numel()
    return counts
