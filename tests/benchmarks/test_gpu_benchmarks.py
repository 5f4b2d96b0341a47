"""The benchmarks for a GPU run on a CPU at a small size, and what they compute without a GPU is right."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import lease, train_step
from benchmarks.gpu.__main__ import make_parser
from benchmarks.gpu.memory import measure as measure_memory

ROOT = Path(__file__).parents[2]
GPU = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu"]
RUN = """
import json, pathlib, sys
if "bad" in sys.argv:
    raise SystemExit("this run fails")
pathlib.Path(sys.argv[sys.argv.index("--folder") + 1], "good_run").mkdir()
open(sys.argv[-1], "w").write(json.dumps({"figures": {"seconds": 1.0}}))
"""
"""In place of benchmarks.gpu, which takes seconds to import."""


def run(tmp_path: Path, *arguments: str) -> dict:
    output = tmp_path / "figures.json"
    command = [*GPU, *arguments, "--device", "cpu", "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(output.read_text(encoding="utf-8"))["figures"]


@pytest.fixture(scope="module")
def trained():
    """A model on its way to be trained, and a row."""
    run, episodes = train_step.prepare(argparse.Namespace(shape="qwen_tiny", batch=1, episodes=1, device="cpu"))
    return run, train_step.make_row(run, episodes, 0)


@pytest.mark.parametrize("name", train_step.UNDO)
def test_a_model_without_an_operation_has_the_same_loss_and_runs_it_again_afterwards(trained, name):
    run, (row, items) = trained

    def forwards():
        return {path: vars(module).get("forward") for path, module in run.model.named_modules()}

    before = forwards()
    with torch.no_grad():
        loss = run.loss(row, items).item()
        with train_step.without(run.model, [name]):
            assert (forwards() != before) == (name in {"patches", "lora", "norms", "swiglu"})
            assert run.loss(row, items).item() == pytest.approx(loss, rel=0.01)
        assert forwards() == before
        assert run.loss(row, items).item() == loss


def test_checkpointing_ends_with_its_block(trained):
    run, _ = trained
    layers = [module for module in run.model.modules() if hasattr(module, "gradient_checkpointing")]
    with train_step.checkpointed(run.model, 3):
        assert any(layer.gradient_checkpointing for layer in layers)
    assert not any(layer.gradient_checkpointing for layer in layers)


def memory_of(*checkpointing: str) -> dict:
    """The memory of a Qwen2.5-VL whose head has 7B's share of the work."""
    words = ("memory", "--shape", "qwen_7b_head", "--episodes", "2", "--checkpointing", *checkpointing)
    return measure_memory(make_parser().parse_args([*words, "--device", "cpu"]))


@pytest.fixture(scope="module")
def memory() -> dict:
    """Every layer is checkpointed, as in recipes."""
    return memory_of()


def test_the_dry_run_estimates_the_memory_of_a_step_within_a_tenth(memory):
    assert memory["peak_over_estimate"] == pytest.approx(1, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointed", ["0", "3"])
def test_the_dry_run_estimates_the_memory_of_a_step_with_some_layers_checkpointed_within_a_tenth(checkpointed):
    assert memory_of(checkpointed)["peak_over_estimate"] == pytest.approx(1, abs=0.1)


def test_one_variable_length_call_per_layer_replaces_a_call_per_window_and_sentence(memory):
    layers, tower, windowed, sentences, screens = 8, 4, 3, 2, 16
    windows = 4 * 2  # of 448 x 224 pixels, 112 a side
    assert memory["attention_calls"] == {
        "varlen": {"vision": tower, "language_model": layers},
        "loop": {"vision": screens * (windowed * windows + 1), "language_model": layers * sentences},
    }


def test_evaluation_is_measured_after_a_prefill_alone_and_with_every_step_decoded(tmp_path):
    figures = run(tmp_path, "evaluate", "--shape", "llama_vit_tiny", "--batch", "1", "--episodes", "1", "--rounds", "1")
    assert (figures["prefill"]["from_prefill"], figures["decoding"]["from_prefill"]) == (1, 0)
    assert figures["prefill"]["steps_per_second"] > figures["decoding"]["steps_per_second"] > 0
    assert 0.5 < figures["agreement"]["as_evaluated"] <= 1


@pytest.mark.slow
def test_evaluation_is_measured_without_each_faster_operation(tmp_path):
    sizes = ("--batch", "1", "--episodes", "1", "--rounds", "1")
    figures = run(tmp_path, "evaluate", "--shape", "qwen_tiny", *sizes, "--undo", "merged", "graphs", "heads", "varlen")
    assert figures["agreement"]["as_evaluated"] == figures["agreement"]["adapter_apart"]


@pytest.fixture
def leased(tmp_path, monkeypatch, capsys):
    """Runs a lease of four variants, two of which fail; returns its exit status and what it prints."""
    (tmp_path / "run.py").write_text(RUN)
    variants = [
        lease.Variant("good", "kernels", ("kernels",), 1),
        lease.Variant("bad", "kernels", ("kernels", "--bad"), 1),
        lease.Variant("long", "other", ("kernels", "--long"), 1000),
        lease.Variant("good_run", "runs", ("runs", "good"), 1),
        lease.Variant("bad_run", "runs", ("runs", "bad"), 1),
    ]

    def figures(options):
        if options.bad:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return {"seconds": 1.0}

    monkeypatch.setattr(lease, "SCRIPT", (str(tmp_path / "run.py"),))
    monkeypatch.setattr(lease, "variants", lambda on_cpu: variants)
    monkeypatch.setattr(lease.kernels, "measure", figures)
    monkeypatch.setattr(lease, "release_memory", lambda: None)  # seconds in a process of many tests

    def run_lease(commit: str) -> tuple[int, str]:
        options = argparse.Namespace(output=tmp_path / "lease", commit=commit, device="cpu", only=None, minutes=1)
        status = lease.main(
            options, lambda words: argparse.Namespace(benchmark="kernels", bad="--bad" in words, device="cpu")
        )
        return status, capsys.readouterr().out

    return run_lease


def test_a_lease_survives_variants_that_fail_and_begins_none_that_does_not_fit(leased, tmp_path):
    status, printed = leased("one")
    lines = [json.loads(line) for line in (tmp_path / "lease" / "lease.jsonl").read_text().splitlines()]
    assert status == 1
    assert {line["variant"]: (line["figures"], line["error"]) for line in lines} == {
        "good": ({"seconds": 1.0}, None),
        "bad": (None, "OutOfMemoryError: CUDA out of memory"),
        "good_run": ({"seconds": 1.0}, None),
        "bad_run": (None, "this run fails"),
    }
    assert "2 of 5 variants ok" in printed
    assert "not begun: it takes about 1000 s of" in printed
    assert (tmp_path / "lease" / "summary.txt").read_text() in printed
    assert {file.name for file in (tmp_path / "lease").iterdir()} == {
        "lease.jsonl",
        "summary.txt",
        "good_run.log",
        "bad_run.log",
    }


def test_a_lease_goes_on_from_the_figures_of_its_commit(leased):
    kept = [leased(commit)[1].count("kept: ") for commit in ("one", "one", "two", "two", "two-dirty", "two-dirty")]
    assert kept == [0, 2, 0, 2, 0, 0]


def test_a_lease_writes_at_most_eight_files():
    logs = [variant for variant in lease.variants(on_cpu=False) if variant.group == "runs"]
    assert len(logs) + len(["lease.jsonl", "summary.txt"]) <= 8


def test_every_variant_of_a_lease_has_options_that_its_benchmark_knows():
    for on_cpu in (False, True):
        found = list(lease.variants(on_cpu))
        assert len({variant.name for variant in found}) == len(found)
        for variant in found:
            make_parser().parse_args(variant.words if variant.group != "runs" else [*variant.words, "--folder", "x"])


@pytest.mark.slow
def test_a_whole_lease_runs_on_a_cpu(tmp_path):
    command = [*GPU, "lease", "--minutes", "30", "--device", "cpu", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "lease.jsonl").read_text().splitlines()]
    losses = {line["variant"]: line["figures"].get("losses") for line in lines}
    assert losses["sharding"].keys() == {"ddp", "zero2", "zero3"}
    assert losses["qwen_tiny"] == pytest.approx(losses["qwen_tiny_without_lora"], rel=0.01)
