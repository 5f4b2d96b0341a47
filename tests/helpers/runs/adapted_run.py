"""A finished run whose weights are an adapter, as training leaves it, in a moment."""

from pathlib import Path

import torch
import yaml
from helpers import tiny

from vlm_agent.models.build import save
from vlm_agent.models.family import processor_of
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.run_layout import BASE_FOLDER, RECIPE_FILE
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.models.weights.quantisation import quantise
from vlm_agent.recipe.model import ModelRecipe

EPISODES = 3


def write_run(folder: Path, steps: int = 3, **model) -> Path:
    """RUN, beside the shards it was trained on; `model` are keys of the recipe's model beside tiny ones."""
    shards = tiny.write_shards(folder / "shards", [tiny.episode(number) for number in range(EPISODES)])
    content = tiny.recipe(shards, folder / "run")
    content["model"] |= {"train": {"language_model": "lora"}, "lora": {"rank": 2, "alpha": 4}} | model
    recipe = ModelRecipe(**content["model"])
    if recipe.dtype == "bfloat16":
        content["training"]["bf16"] = True
    tokenizer = tiny.tokenizer()
    base = tiny.model(len(tokenizer), visual_norm=0.7, visual_positions=True).to(getattr(torch, recipe.dtype))
    base.save_pretrained(folder / "run" / BASE_FOLDER)
    trained = choose_trained_weights(quantise(base, recipe.quantisation), recipe.train, recipe.lora)
    processor = processor_of(base.config)
    sentence = processor.sentences(tokenizer, tiny.LANGUAGE).build(tiny.episode())
    row = {name: value for name, value in processor.collate([sentence]).items() if name not in NOT_FOR_MODELS}
    weights = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for _ in range(steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.dtype == "bfloat16"):
            loss = trained(**row).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    save(trained, tokenizer, folder / "run")
    (folder / "run" / RECIPE_FILE).write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder / "run"
