"""A dry run counts the data, memory and FLOPs of the run without reading weights."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import tiny
from helpers.published.published_configs import LLAMA_2_7B, QWEN2_5_VL_3B, QWEN2_5_VL_7B, QWEN3_VL_8B, VIT_L_16_224
from rich.console import Console
from transformers import AutoConfig

from vlm_agent.episodes import Action
from vlm_agent.errors import RecipeError
from vlm_agent.models.build import build
from vlm_agent.models.cost import TrainingFlops
from vlm_agent.models.family import family_of
from vlm_agent.models.llama_vit.family import LlamaViTCost
from vlm_agent.models.llama_vit.model import LlamaViTConfig
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.recipe.run import read_recipe
from vlm_agent.sentences import IGNORED
from vlm_agent.training.data.recipe_sentences import whole_lengths
from vlm_agent.training.data.shard_data import ShardDataModule
from vlm_agent.training.dry_run.hardware import find_gpu
from vlm_agent.training.dry_run.memory import SHARDINGS, empty_model
from vlm_agent.training.dry_run.report import Target, count_parameters, dry_run, print_dry_run, run_rows
from vlm_agent.training.dry_run.start import check_start

QWEN = {
    "model_type": "qwen2_5_vl",
    "text_config": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
    },
    "vision_config": {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "out_hidden_size": 32,
        "fullatt_block_indexes": [1],
    },
}
H100 = Target(find_gpu("H100"), gpus=2, mfu=0.4)


def llama_2_7b_and_vit_l() -> LlamaViTConfig:
    vision, text = AutoConfig.for_model(**VIT_L_16_224), AutoConfig.for_model(**LLAMA_2_7B)
    return LlamaViTConfig(vision, text)


def whole(counts: dict[str, dict[str, int]], *parts: str) -> int:
    """Parameters before any adapter."""
    return sum(counts[part]["frozen"] for part in parts)


def test_the_papers_llama_and_vit_have_their_published_parameter_counts():
    source = {"checkpoint": "here"}
    recipe = ModelRecipe(language_model=source, vision=source, dtype="bfloat16")
    counts = count_parameters(empty_model(llama_2_7b_and_vit_l(), recipe))
    assert whole(counts, "embeddings", "language_model", "norm", "head") == 6_738_415_616
    assert whole(counts, "vision") == pytest.approx(304e6, rel=0.005)
    assert counts["language_model"]["trained"] == 32 * 16 * (4 * 2 * 4096 + 3 * (4096 + 11008))
    assert counts["projector"]["trained"] == 1024 * 4096 + 4096


PUBLISHED = {
    "qwen2_5_vl_7b": (QWEN2_5_VL_7B, 8_292_166_656),
    "qwen2_5_vl_3b": (QWEN2_5_VL_3B, 3_754_622_976),
    "qwen3_vl_8b": (QWEN3_VL_8B, 8_767_123_696),
}


@pytest.mark.parametrize(("config", "parameters"), PUBLISHED.values(), ids=PUBLISHED)
def test_a_qwen_vl_has_its_published_parameter_count(config, parameters):
    config = AutoConfig.for_model(**config)
    counts = count_parameters(empty_model(config, ModelRecipe(vlm={"checkpoint": "here"}, dtype="bfloat16")))
    assert whole(counts, *counts) == parameters
    assert counts["projector"]["trained"] == 0


def test_the_flops_of_the_papers_tower_follow_from_its_published_sizes():
    train = ModelRecipe(base="run").train
    work = LlamaViTCost(llama_2_7b_and_vit_l()).screen_flops((896, 448), train, 16, checkpointing=True)
    patches, layers = 56 * 28 + 1, 24 * 12 * 1024**2
    by_hand = 2 * layers * patches + 4 * 24 * 1024 * patches**2 + 2 * 128 * 1024 * 4096
    assert work.forward == pytest.approx(by_hand, rel=0.005)
    assert (work.backward, work.recomputed) == (2 * 128 * 1024 * 4096, 0)


def data_module_of(
    tmp_path: Path, training: dict, model: dict | None = None, data: dict | None = None
) -> ShardDataModule:
    """Five episodes of one to nine steps."""
    actions = tuple(Action.tap(k / 10, 0.5) for k in range(8))
    episodes = [tiny.episode(k, (*actions[: 2 * k], Action.complete())) for k in range(5)]
    content = tiny.recipe(tiny.write_shards(tmp_path / "shards", episodes), tmp_path / "run")
    content["training"] = {"bf16": True} | training
    content["data"] |= data or {}
    content["model"] |= {"element_loss": 0.0}
    content["model"] = content["model"] if model is None else model
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return ShardDataModule(read_recipe(path))


WHOLE_EPISODES = {"epochs": 1, "batch_size": 2}
QWEN_MODEL = {"vlm": {"config": QWEN}, "word_tokenizer": {"vocabulary": 1000}}
RUNS = {
    "llama_vit": (None, WHOLE_EPISODES),
    "llama_vit, windows": (None, {"epochs": 1, "batch_tokens": 120}),
    "qwen": (QWEN_MODEL, WHOLE_EPISODES),
    "qwen, windows": (QWEN_MODEL, {"epochs": 1, "batch_tokens": 300}),
}


@pytest.mark.parametrize(("model", "training"), RUNS.values(), ids=RUNS)
def test_counts_equal_the_content_of_all_rows_of_a_pass(tmp_path, model, training):
    plan = data_module_of(tmp_path, training, model)
    reads = dry_run(plan, H100).reads
    again = [item for item in plan.order.items if item.window and item.window.first_supervised > item.window.first]
    assert bool(again) == (training is not WHOLE_EPISODES)  # windows that read steps which they do not learn
    rows = [plan.stream()[number] for number in range(plan.order.rows_in(1))]
    cost = family_of(plan.config).cost(plan.config)
    loads = [cost.workload(row) for row in rows]
    # Lengths are those of `ShardDataModule`; it counts a turn's mark before the first screen of each later window, too.
    within = 0.03 if model and reads.over_budget else 0
    assert reads.load.tokens == pytest.approx(sum(load.tokens for load in loads), rel=within)
    assert reads.load.pairs == pytest.approx(sum(load.pairs for load in loads), rel=2 * within)
    assert reads.load.supervised == sum(load.supervised for load in loads)
    assert reads.load.screens == sum((load.screens for load in loads[1:]), loads[0].screens)
    assert reads.longest >= max(int(np.diff(row["cu_seqlens"]).max()) for row in rows)
    assert (reads.episodes, reads.actions) == (5, 1 + 3 + 5 + 7 + 9)
    learned = sum(int(((row["labels"] != IGNORED).int().diff() == 1).sum()) for row in rows)
    assert learned == reads.actions


def test_episodes_over_the_budget_and_their_windows_are_reported(tmp_path):
    plan = data_module_of(tmp_path, {"epochs": 1, "batch_tokens": 80})
    reads = dry_run(plan, H100).reads
    over = [number for number, tokens in enumerate(whole_lengths(plan.shards, plan.sentences)) if tokens > 80]
    assert reads.over_budget == len(over) > 0
    assert reads.windows == sum(item.episode in over for item in plan.order.items)
    assert reads.sentences == len(plan.order.items)


def test_a_step_has_its_number_of_average_rows_and_time_is_proportional(tmp_path):
    plan = data_module_of(tmp_path, {"epochs": 6, "batch_size": 1, "accumulation": 3})
    dry = dry_run(plan, H100)
    flops = TrainingFlops(family_of(plan.config).cost(plan.config), plan.recipe.model.train, 16, checkpointed=0)
    a_pass = sum(flops.of(flops.cost.workload(plan.stream()[number])).model for number in range(5))
    assert (dry.rows_a_pass, dry.step.rows, dry.steps) == (5, 6, 5)
    assert dry.step.work.model == pytest.approx(a_pass * 6 / 5)
    assert dry.step.tokens == pytest.approx(dry.reads.load.tokens * 6 / 5)
    assert dry.hours == pytest.approx(6 * a_pass / (2 * 989.4e12 * 0.4) / 3600)


def test_a_dry_run_creates_and_reads_no_weight(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("weights were made")

    plan = data_module_of(tmp_path, {"steps": 3})
    monkeypatch.setattr("transformers.PreTrainedModel.from_pretrained", refuse)
    model = empty_model(plan.config, plan.recipe.model)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    real = build(plan.recipe.model, plan.tokenizer, plan.recipe.action_language.build())
    assert {name: weight.shape for name, weight in model.named_parameters()} == {
        name: weight.shape for name, weight in real.named_parameters()
    }


def test_checkpointing_and_each_sharding_save_memory(tmp_path):
    dry = dry_run(data_module_of(tmp_path, {"steps": 3}), H100)
    assert list(dry.memory) == [sharding.name for sharding in SHARDINGS]
    assert dry.activations[-1] < dry.activations[0]
    ddp, zero2, zero3, offload = (
        memory.weights + memory.gradients + memory.optimizer for memory in dry.memory.values()
    )
    assert ddp > zero2 > zero3 > offload == 0


def test_a_dry_run_fits_on_one_screen_with_all_figures(tmp_path):
    dry = dry_run(data_module_of(tmp_path, {"epochs": 2, "batch_tokens": 80, "gradient_checkpointing": True}), H100)
    console = Console(width=120, record=True)
    print_dry_run(console, dry)
    shown = console.export_text()
    assert len(shown.splitlines()) <= 35
    for words in (
        "on 2 x H100 at ",
        "% MFU, 40% with what is recomputed",
        "zero3_offload",
        "cut into",
        "computed",
        "2 of 2 layers (estimate 1.0 of 80.0 GB): ",
    ):
        assert words in shown
    assert run_rows(dry)["tokens a screen"] == "8"


def test_recomputation_takes_time_and_lowers_mfu(tmp_path):
    plain, again = (
        dry_run(data_module_of(tmp_path / name, {"steps": 3, "gradient_checkpointing": on}), H100)
        for name, on in (("plain", False), ("again", True))
    )
    work = again.step.work
    assert plain.mfu == 0.4
    assert again.mfu == pytest.approx(0.4 * work.model / work.hardware)
    assert again.hours == pytest.approx(plain.hours * work.hardware / work.model)


def test_without_an_assumption_each_gpu_has_its_own(tmp_path):
    plan = data_module_of(tmp_path, {"steps": 3})
    assert [dry_run(plan, Target(find_gpu(name), 1)).mfu for name in ("H100", "A100")] == [0.3, 0.4]


def test_a_dry_run_refuses_drawn_sentences(tmp_path):
    with pytest.raises(RecipeError, match="trajectory"):
        dry_run(data_module_of(tmp_path, {"steps": 3}, data={"sentences": "elements"}), H100)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"deepspeed": "no_such.json"}, "training.deepspeed: .*no_such.json cannot be read"),
        ({"validation": {"split": "test"}}, "no episode in split test to validate on"),
    ],
)
def test_a_dry_run_refuses_what_a_run_would_after_queueing(tmp_path, training, message):
    check_start(data_module_of(tmp_path / "fine", {"steps": 3}))
    with pytest.raises(RecipeError, match=message):
        check_start(data_module_of(tmp_path / "not", {"steps": 3} | training))
