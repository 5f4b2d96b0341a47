"""A merged checkpoint computes the logits of base and adapter, or it is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from helpers import tiny
from helpers.runs import adapted_run
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from vlm_agent.agents.loading import agent_settings
from vlm_agent.episodes import Screen
from vlm_agent.errors import UserError
from vlm_agent.models.build import build_model, configuration_of, load
from vlm_agent.models.family import processor_of
from vlm_agent.models.llama_vit.model import LlamaViT
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.models.run_layout import ADAPTER_WEIGHTS, MERGED, MODEL_FOLDER
from vlm_agent.models.weights import adapters, merge
from vlm_agent.models.weights.adapters import SHARD_SIZE, merge_adapter
from vlm_agent.models.weights.merge import TOLERANCE, MergeError, compare, divergence, merge_run
from vlm_agent.models.weights.precision import is_quantised
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.training.run_folder.checkpoint_record import seal


def samples(model, tokenizer) -> list[dict]:
    processor = processor_of(model.config)
    sentences = processor.sentences(tokenizer, tiny.LANGUAGE)
    rows = [processor.collate([sentences.build(tiny.episode(number))]) for number in range(2)]
    return [{name: value for name, value in row.items() if name not in NOT_FOR_MODELS} for row in rows]


def no_samples(model, tokenizer) -> list[dict]:
    batches = samples(model, tokenizer)
    nothing = {"target_places": torch.empty(0, dtype=torch.int64)}
    return [batch | {"labels": torch.full_like(batch["labels"], -100)} | nothing for batch in batches]


def left(run) -> set[str]:
    """What lies beside a run and its shards."""
    return {path.name for path in run.parent.iterdir()} - {"run", "shards"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return adapted_run.write_run(tmp_path_factory.mktemp("float"))


PARTS = ("embeddings", "norm", "head")
"""Parts that may train in full, in float32, beside an adapter on a bfloat16 base."""


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"lora": {"rank": 2, "dora": True}},
        {"lora": {"rank": 4, "rslora": True}},
        {"dtype": "bfloat16"},
        {"quantisation": "nf4"},
        {"quantisation": "nf4", "lora": {"rank": 2, "dora": True}},
        {"quantisation": "int8"},
        {"dtype": "bfloat16", "quantisation": "nf4"},
        {"dtype": "bfloat16", "quantisation": "int8"},
        *({"dtype": "bfloat16", "train": {"language_model": "lora", part: "full"}} for part in PARTS),
        {"dtype": "bfloat16", "quantisation": "nf4", "train": {"language_model": "lora", "head": "full"}},
    ],
    ids=lambda model: (
        "-".join([*model, *model.get("lora", {}), *map(str, model.values())][:4])
        + "".join(f"-{part}" for part in PARTS if part in model.get("train", {}))
    ),
)
def test_a_merged_model_computes_the_logits_of_base_and_adapter(model, tmp_path):
    run = adapted_run.write_run(tmp_path, **model)
    assert is_quantised(load(run)[0]) == ("quantisation" in model)
    result = merge_run(run, tmp_path / "merged", samples)
    merged, tokenizer = load(tmp_path / "merged")
    assert isinstance(merged, LlamaViT)
    assert {str(parameter.dtype) for parameter in merged.parameters()} == {f"torch.{model.get('dtype', 'float32')}"}
    found = result.agreement
    assert found.max_relative <= (TOLERANCE if result.dtype == "float32" else 0.01)
    assert found.positions == sum(int((batch["labels"] != -100).sum()) for batch in samples(merged, tokenizer))
    assert found.same_choice >= 0.95 * found.positions
    assert json.loads((tmp_path / "merged" / MERGED).read_text())["agreement"]["positions"] == found.positions


def test_a_quantised_run_is_evaluated_as_it_was_trained_and_gone_on_from_as_merged(tmp_path):
    run = adapted_run.write_run(tmp_path, quantisation="nf4")
    trained, tokenizer = load(run)
    evaluated, _ = load(run, merged=True)
    base = build_model(ModelRecipe(base=str(run)), tokenizer)
    (batch, _) = samples(base, tokenizer)
    with torch.inference_mode():
        before = trained(**batch).logits
        assert torch.equal(evaluated(**batch).logits, before)
        assert compare(before, base(**batch).logits).max_relative <= TOLERANCE
    assert is_quantised(evaluated)
    assert not is_quantised(base)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_evaluated_adapter_is_merged_into_the_weights_that_merge_writes(dtype, tmp_path):
    run = adapted_run.write_run(tmp_path, dtype=dtype)
    merge_run(run, tmp_path / "merged", samples)
    written, evaluated = (load(path, merged=True)[0].state_dict() for path in (tmp_path / "merged", run))
    assert written.keys() == evaluated.keys()
    assert {value.dtype for value in evaluated.values()} == {getattr(torch, dtype)}
    assert all(torch.equal(written[name], value) for name, value in evaluated.items())
    settings = agent_settings(str(run))
    assert settings.is_merged
    assert settings.text_notes == {"adapter": f"merged into {dtype} weights"}
    assert "adapter" not in agent_settings(str(tmp_path / "merged")).text_notes
    apart = agent_settings(str(run), overrides={"merged": False})
    assert apart.text_notes == {"adapter": f"apart from {dtype} weights"}
    assert isinstance(apart.load().model, PeftModel)


def test_a_head_that_was_trained_in_full_is_read_by_the_agent_of_a_quantised_run(tmp_path):
    train = {"language_model": "lora", "head": "full"}
    run = adapted_run.write_run(tmp_path, dtype="bfloat16", quantisation="nf4", train=train)
    agent = agent_settings(str(run)).load()
    answer = agent.act("open settings 0", (), Screen(tiny.episode().steps[0].screenshot, tiny.ELEMENTS))
    assert answer.usage.tokens_written


def test_an_adapter_of_quantised_weights_stays_apart(tmp_path):
    run = adapted_run.write_run(tmp_path, quantisation="nf4")
    settings = agent_settings(str(run))
    assert not settings.is_merged
    assert settings.text_notes == {"adapter": "apart from nf4 weights"}
    with pytest.raises(UserError, match=r"--agent.merged true: .* was trained on nf4 weights"):
        agent_settings(str(run), overrides={"merged": True}).load()


def test_a_checkpoint_of_an_unfinished_run_has_the_configuration_of_the_run(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    checkpoint = tmp_path / "run/checkpoints/checkpoint-3"
    checkpoint.parent.mkdir()
    (tmp_path / "run/model").rename(checkpoint)
    seal(checkpoint, 3, 3, {}, None)
    tokenizer = load(run)[1]
    config = configuration_of(ModelRecipe(base=str(checkpoint)), tokenizer)
    assert config.to_dict() == configuration_of(ModelRecipe(base=str(run)), tokenizer).to_dict()


def test_the_adapter_is_in_it(run, tmp_path):
    """And the comparison would tell: the base alone is further away than is accepted."""
    merge_run(run, tmp_path / "merged", samples)
    adapted, tokenizer = load(run)
    merged, _ = load(tmp_path / "merged")
    (batch, _) = samples(merged, tokenizer)
    with torch.inference_mode():
        before, after = adapted(**batch).logits, merged(**batch).logits
        for layer in adapted.modules():
            if hasattr(layer, "lora_B"):
                layer.scaling = dict.fromkeys(layer.scaling, 0.0)
        without = adapted(**batch).logits
    assert compare(before, after).max_relative <= TOLERANCE
    assert compare(before, without).max_relative > 10 * TOLERANCE


def test_what_is_written_stands_alone(run, tmp_path):
    """No recipe, base or code of a run is needed to load the model and its tokenizer."""
    merge_run(run, tmp_path / "merged", samples)
    folder = tmp_path / "merged" / MODEL_FOLDER
    assert isinstance(LlamaViT.from_pretrained(folder), LlamaViT)
    assert len(AutoTokenizer.from_pretrained(folder)) == len(load(run)[1])
    assert not (folder / ADAPTER_WEIGHTS).exists()
    assert not list((tmp_path / "merged").rglob("*.bin"))


def test_large_weights_are_split_over_files(run, tmp_path, monkeypatch):
    assert SHARD_SIZE.endswith("GB")
    monkeypatch.setattr(adapters, "SHARD_SIZE", "50KB")
    merge_run(run, tmp_path / "merged", samples)
    assert len(list((tmp_path / "merged" / MODEL_FOLDER).glob("model-*.safetensors"))) > 1


def forgets_the_adapter(model):
    return model.unload()


def adds_half_of_it(model):
    for layer in model.modules():
        if hasattr(layer, "lora_B"):
            layer.scaling = {name: scale / 2 for name, scale in layer.scaling.items()}
    return merge_adapter(model)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("wrong", [forgets_the_adapter, adds_half_of_it])
def test_a_merge_with_other_logits_is_kept_under_another_name(dtype, wrong, tmp_path, monkeypatch):
    run = adapted_run.write_run(tmp_path, steps=20, dtype=dtype)
    monkeypatch.setattr(merge, "merge_adapter", wrong)
    found = {"float32": r"logits differ by up to .* 0\.0001 is accepted", "bfloat16": "25% of what bfloat16 arithmetic"}
    with pytest.raises(MergeError, match=rf"computes something else: .*{found[dtype]}.*merged\.refused keeps"):
        merge_run(run, tmp_path / "merged", samples)
    assert left(run) == {"merged.refused"}
    assert json.loads((tmp_path / "merged.refused" / MERGED).read_text())["dtype"] == dtype
    load(tmp_path / "merged.refused")
    with pytest.raises(MergeError, match=r"merged\.refused holds something already"):
        merge_run(run, tmp_path / "merged", samples)


def test_an_adapter_that_rounding_swallows_is_not_merged(tmp_path):
    run = adapted_run.write_run(tmp_path, steps=0, dtype="bfloat16")
    path = run / MODEL_FOLDER / ADAPTER_WEIGHTS
    generator = torch.Generator().manual_seed(0)
    weights = load_file(path)
    for name, value in weights.items():
        if "lora_B" in name:
            weights[name] = 1e-6 * torch.randn(value.shape, generator=generator)
    save_file(weights, path)
    with pytest.raises(MergeError, match=r"loses the adapter: .* bfloat16 cannot hold changes of weights as small"):
        merge_run(run, tmp_path / "merged", samples)


def test_an_adapter_of_nans_is_refused(tmp_path):
    run = adapted_run.write_run(tmp_path)
    path = run / MODEL_FOLDER / ADAPTER_WEIGHTS
    weights = load_file(path)
    save_file({name: value * torch.nan if "lora_B" in name else value for name, value in weights.items()}, path)
    with pytest.raises(MergeError, match="differ by up to nan"):
        merge_run(run, tmp_path / "merged", samples)
    assert left(run) == {"merged.refused"}


def test_an_interrupted_merge_leaves_nothing(run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(merge, "compare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        merge_run(run, run.parent / "merged", samples)
    assert not left(run)


def test_without_a_learned_token_nothing_is_proved(run):
    with pytest.raises(MergeError, match="nothing can be compared"):
        merge_run(run, run.parent / "merged", no_samples)
    assert not left(run)


def test_existing_output_is_not_changed(run, tmp_path):
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(MergeError, match="holds something already"):
        merge_run(run, tmp_path, samples)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_the_working_folder_is_an_output_like_others(run, monkeypatch):
    monkeypatch.chdir(run)
    with pytest.raises(MergeError, match="run holds something already; choose another output"):
        merge_run(run, Path(), samples)


def test_a_run_without_an_adapter_is_refused(run, tmp_path):
    merge_run(run, tmp_path / "merged", samples)
    with pytest.raises(MergeError, match="nothing to merge"):
        merge_run(tmp_path / "merged", tmp_path / "again", samples)


def test_differences_are_measured_beside_the_largest_logit_of_each_position():
    before = torch.tensor([[1.0, -4.0], [2.0, 1.0]])
    after = torch.tensor([[1.0, -3.0], [0.5, 1.0]])
    found = compare(before, after)
    assert (found.positions, found.max_absolute, found.max_relative, found.same_choice) == (2, 1.5, 0.75, 1)


def test_the_divergence_of_a_model_from_itself_is_zero_and_small_ones_are_exact():
    reference = torch.tensor([[2.0, 0.0, -1.0], [0.0, 0.5, 3.0]])
    assert divergence(reference, reference) == 0
    assert divergence(reference, reference + 5) == pytest.approx(0, abs=1e-12)
    other = reference + torch.tensor([1e-3, 0.0, -2e-3])
    exact = torch.nn.functional.kl_div(
        other.double().log_softmax(-1), reference.double().log_softmax(-1), reduction="batchmean", log_target=True
    )
    assert divergence(reference, other) == pytest.approx(exact.item(), rel=1e-3)
