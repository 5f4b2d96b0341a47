"""A tiny Qwen-VL as published, a run that adapted it, and a server that knows it by transformers alone."""

import base64
import io
import json
from contextlib import contextmanager
from pathlib import Path

import torch
import yaml
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.models import tiny_qwen
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from vlm_agent.cli import OK, main
from vlm_agent.models.build import build_model, save
from vlm_agent.models.run_layout import RECIPE_FILE
from vlm_agent.models.weights.adapters import choose_trained_weights
from vlm_agent.recipe.model import ModelRecipe

BASE = "published"
EPISODES = [tiny.episode(number, size=size) for number, size in enumerate([(64, 32), (120, 54), (40, 90), (20, 12)])]
"""Twenty steps on screens smaller and larger than the model's limits."""


def write_merged_run(folder: Path) -> Path:
    """What `write_run` writes, and FOLDER/merged."""
    run = write_run(folder)
    assert main(["merge", str(run), "--output", str(folder / "merged")]) == OK
    return run


def write_run(folder: Path, family: str = "qwen2_5_vl") -> Path:
    """FOLDER/published, a checkpoint with other limits of pixels, and FOLDER/run, an adapter on it that does much."""
    recipe = tiny_qwen.recipe(family)
    words = tiny_qwen.tokenizer(recipe)
    published = tiny_qwen.model(recipe, words)
    published.generation_config.repetition_penalty = 1.05
    published.save_pretrained(folder / BASE)
    words.save_pretrained(folder / BASE)
    shards = tiny.write_shards(folder / "shards", EPISODES)
    content = tiny.recipe(shards, folder / "run")
    content["model"] = {
        "vlm": {"checkpoint": str(folder / BASE)},
        "min_pixels": 6 * 64,
        "max_pixels": 20 * 64,
        "lora": {"rank": 2, "alpha": 4, "dropout": 0.0},
    }
    recipe = ModelRecipe(**content["model"])
    model = choose_trained_weights(build_model(recipe, words), recipe.train, recipe.lora)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.3)
    save(model, words, folder / "run")
    (folder / "run" / RECIPE_FILE).write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder / "run"


class Server:
    """Answers chat completions with a checkpoint that transformers' own classes load, and a request of /tokenize as
    vLLM does, if `tokenizes`."""

    def __init__(self, checkpoint: Path, tokenizes: bool = False, **options):
        self.model = AutoModelForImageTextToText.from_pretrained(checkpoint).eval()
        self.processor = AutoProcessor.from_pretrained(checkpoint, **options)
        self.tokenizes = tokenizes

    def inputs(self, messages: list[dict]) -> dict:
        def part(content: dict) -> dict:
            if content["type"] != "image_url":
                return content
            data = base64.b64decode(content["image_url"]["url"].partition(",")[2])
            return {"type": "image", "image": Image.open(io.BytesIO(data))}

        turns = [
            message if isinstance(message["content"], str) else message | {"content": [*map(part, message["content"])]}
            for message in messages
        ]
        return self.processor.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )

    def generate(self, messages: list[dict], most: int) -> tuple[list[int], list[int]]:
        """(ids read, ids written)"""
        inputs = self.inputs(messages)
        with torch.inference_mode():
            ids = self.model.generate(**inputs, max_new_tokens=most)[0].tolist()
        read = inputs["input_ids"].shape[1]
        return ids[:read], ids[read:]

    def answer(self, number: int, body: dict) -> Reply:
        if "add_generation_prompt" in body:
            if not self.tokenizes:
                return Reply(b"not found", 404)
            ids = self.inputs(body["messages"])["input_ids"][0].tolist()
            return Reply(json.dumps({"count": len(ids), "tokens": ids, "max_model_len": 4096}).encode())
        read, written = self.generate(body["messages"], body["max_tokens"])
        text = self.processor.tokenizer.decode(written, skip_special_tokens=True)
        usage = {"prompt_tokens": len(read), "completion_tokens": len(written)}
        message = {"role": "assistant", "content": text}
        return Reply(json.dumps({"choices": [{"message": message}], "usage": usage}).encode())


@contextmanager
def served(server: Server):
    """The URL of a server on loopback."""
    with serving(server.answer) as (url, requests):
        yield url, requests
