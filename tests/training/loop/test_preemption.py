"""SIGTERM and SIGUSR1: the step ends, a checkpoint is saved, and the run resumes to the same weights."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.training import tiny_trainer, two_ranks
from helpers.training.tiny_trainer import STEPS, STREAM, At, send, weights

from vlm_agent.training.loop.preemption import STOPPED, Preemption, forget_stop
from vlm_agent.training.run_folder.checkpoint_record import check
from vlm_agent.training.run_folder.checkpoints import best


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> torch.Tensor:
    return weights(tiny_trainer.train(tmp_path_factory.mktemp("undisturbed"))[0])


def resumed(folder: Path) -> torch.Tensor:
    trainer, preemption = tiny_trainer.train(folder)
    assert preemption.stopped_after is None
    return weights(trainer)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_finishes_the_step_saves_and_the_run_resumes_to_the_same_weights(tmp_path, undisturbed, number):
    _, preemption = tiny_trainer.train(tmp_path, At(2, send(number)))
    assert preemption.stopped_after == 3
    assert check(tmp_path / "checkpoints" / "checkpoint-3")["packs"] == 12
    assert torch.equal(resumed(tmp_path), undisturbed)


def test_a_run_without_regular_saves_saves_on_a_signal(tmp_path, undisturbed):
    tiny_trainer.train(tmp_path, At(2, send(signal.SIGTERM)), save_steps=None)
    assert torch.equal(resumed(tmp_path), undisturbed)


def test_signals_during_saving_break_nothing(tmp_path, undisturbed):
    """More come while the run writes each of its files and while the checkpoint is sealed."""
    genuine = torch.save

    def save(*args, **options):
        send(signal.SIGTERM)()
        genuine(*args, **options)
        send(signal.SIGUSR1)()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "save", save)
        _, preemption = tiny_trainer.train(tmp_path, At(1, send(signal.SIGTERM)), At(2, send(signal.SIGTERM), "save"))
    assert preemption.stopped_after == 2
    check(tmp_path / "checkpoints" / "checkpoint-2")
    assert torch.equal(resumed(tmp_path), undisturbed)


def test_a_signal_during_a_regular_save_is_obeyed_after_the_next_step(tmp_path):
    _, preemption = tiny_trainer.train(tmp_path, At(2, send(signal.SIGTERM), "save"))
    assert preemption.stopped_after == 3


def test_a_signal_before_the_first_step_is_obeyed_after_it(tmp_path):
    _, preemption = tiny_trainer.train(tmp_path, At(0, send(signal.SIGTERM), "start"))
    assert preemption.stopped_after == 1


def test_a_signal_during_validation_is_obeyed_after_the_next_step(tmp_path):
    _, preemption = tiny_trainer.train(tmp_path, At(2, send(signal.SIGTERM), "validate"), validate=2)
    assert preemption.stopped_after == 3


def test_a_signal_stops_the_run_without_a_validation(tmp_path):
    trainer, _ = tiny_trainer.train(tmp_path, At(1, send(signal.SIGTERM)), validate=2)
    assert not any("eval_loss" in line for line in trainer.lines)


def test_the_resumed_run_validates_where_the_signal_left_it_out(tmp_path):
    """With the figures and the best checkpoint of an uninterrupted run."""
    options = {"validate": 3, "save_steps": 3}
    whole, _ = tiny_trainer.train(tmp_path / "whole", **options)
    _, preemption = tiny_trainer.train(tmp_path / "stopped", At(2, send(signal.SIGTERM)), **options)
    assert preemption.stopped_after == 3
    assert check(tmp_path / "stopped/checkpoints/checkpoint-3")["validation"] is None
    resumed, _ = tiny_trainer.train(tmp_path / "stopped", **options)
    assert _validations(resumed) == _validations(whole)
    assert [line["step"] for line in _validations(whole)] == [3, 6]
    for step in (3, 6):
        records = [check(tmp_path / run / "checkpoints" / f"checkpoint-{step}") for run in ("whole", "stopped")]
        assert records[0]["validation"] == records[1]["validation"]
    names = {best(tmp_path / run / "checkpoints").name for run in ("whole", "stopped")}
    assert len(names) == 1
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.parametrize("options", [{}, {"validate": 2}])
def test_a_resumed_run_validates_at_no_other_step(tmp_path, options):
    tiny_trainer.train(tmp_path, At(2, send(signal.SIGTERM)), **options)
    resumed, _ = tiny_trainer.train(tmp_path, **options)
    assert [line["step"] for line in _validations(resumed)] == ([2, 4, 6] if options else [])


def test_a_validation_before_a_kill_is_not_repeated(tmp_path):
    options = {"validate": 2}
    with pytest.raises(KeyError):
        tiny_trainer.train(tmp_path, At(2, _die), **options)
    resumed, _ = tiny_trainer.train(tmp_path, **options)
    assert [line["step"] for line in _validations(resumed)] == [2, 4, 6]


def _die() -> None:
    raise KeyError


def _validations(trainer: tiny_trainer.Trained) -> list[dict]:
    """Without their times."""
    lines = [line for line in trainer.lines if "eval_loss" in line]
    return [{name: line[name] for name in line if name == "step" or name.startswith("eval_")} for line in lines]


def test_a_signal_in_the_last_step_changes_nothing(tmp_path, undisturbed):
    trainer, preemption = tiny_trainer.train(tmp_path, At(STEPS - 1, send(signal.SIGTERM)))
    assert preemption.stopped_after is None
    assert torch.equal(weights(trainer), undisturbed)


def test_signal_handlers_are_restored_after_the_run():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    with pytest.raises(KeyError), Preemption():
        assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
        raise KeyError
    assert {number: signal.getsignal(number) for number in before} == before


def test_the_stop_message_names_the_checkpoint_and_stays_until_the_run_resumes(tmp_path):
    _, preemption = tiny_trainer.train(tmp_path, At(2, send(signal.SIGUSR1)))
    words = preemption.report(tmp_path)
    assert words == (
        f"{tmp_path}: stopped by SIGUSR1 after step 3, which is saved; run the same command again to resume"
    )
    assert (tmp_path / STOPPED).read_text() == words + "\n"
    forget_stop(tmp_path)
    forget_stop(tmp_path)
    assert not (tmp_path / STOPPED).exists()


def test_a_signal_to_one_rank_stops_all_and_does_not_kill_loader_workers(tmp_path):
    """The signal goes to one rank's whole process group, as torchrun and Slurm send it."""
    printed = two_ranks.run(
        tmp_path,
        """
from helpers.training import tiny_trainer
options = {"workers": 1}
undisturbed, _ = tiny_trainer.train(folder / "undisturbed", **options)
signals = [tiny_trainer.At(2, lambda: os.killpg(os.getpgrp(), signal.SIGUSR1))] if rank == 1 else []
signals += [tiny_trainer.At(2, lambda: os.killpg(os.getpgrp(), signal.SIGTERM))] if rank == 1 else []
_, preemption = tiny_trainer.train(folder, *signals, **options)
words = preemption.report(folder)
resumed, preemption = tiny_trainer.train(folder, **options)
assert preemption.stopped_after is None
assert torch.equal(*map(tiny_trainer.weights, (undisturbed, resumed)))
print(words)
""",
    )
    assert all("stopped by SIGTERM after step 3" in out.splitlines()[-1] for out in printed)
    newest = check(tmp_path / "checkpoints" / f"checkpoint-{STEPS}")
    assert {"rng_state_0.pth", "rng_state_1.pth", "optimizer.pt", "model.safetensors"} <= newest["files"].keys()
    assert newest["packs"] == len(STREAM)


def test_a_worker_of_a_loader_survives_the_signals_that_its_parent_handles():
    code = """import os
from vlm_agent.training.loop.preemption import SIGNALS, leave_stopping_to_parent
leave_stopping_to_parent(0)
for number in SIGNALS:
    os.kill(os.getpid(), number)
print("alive")"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "alive\n", done.stderr
