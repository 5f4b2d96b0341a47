"""Recipes and data of tiny Auto-UI runs, with features of the embedded base."""

from pathlib import Path

from helpers import tiny

from vlm_agent.cli import OK, main

T5 = {
    "model_type": "t5",
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 2,
    "dropout_rate": 0.0,
    "scale_decoder_outputs": False,
}
EXTRACTOR = "phone_vlm_tiny"


def write_features(shards: Path, output: Path, form: str = "pooled") -> Path:
    command = ["features", str(shards), "--extractor", EXTRACTOR, "--form", form, "--output", str(output)]
    assert main(command) == OK
    return output


def recipe(shards: Path, features: Path | None, run: Path, form: str = "pooled", **data) -> dict:
    """What a YAML recipe holds: three steps of training from nothing. `data`: keys of the section of this name."""
    return {
        "output": str(run),
        "model": {
            "encoder_decoder": {"config": T5},
            "features": {"extractor": EXTRACTOR, "form": form},
            "word_tokenizer": {"vocabulary": 1000},
        },
        "action_language": {"name": "auto_ui"},
        "data": {
            "shards": str(shards),
            "sentences": "chain_of_actions",
            "features": None if features is None else str(features),
        }
        | data,
        "training": {
            "steps": 3,
            "batch_size": 2,
            "optimizer": {"name": "adamw", "learning_rate": 2e-3},
            "log_steps": 1,
        },
    }


def episodes() -> list:
    return [tiny.episode(0), tiny.episode(1, tiny.ACTIONS[:1]), tiny.episode(2, tiny.ACTIONS[::-1] + tiny.ACTIONS)]
