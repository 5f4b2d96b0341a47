"""Checkpoints: whatever happens to their files, a run resumes from a complete one, or reports why it cannot."""

import errno
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers import tiny
from helpers.robustness.durability import record_syncs_and_renames
from helpers.training import tiny_trainer, two_ranks
from helpers.training.tiny_trainer import IDENTITY, STEPS, weights

from vlm_agent.errors import TrainingError
from vlm_agent.files import read_checked, write_json
from vlm_agent.models.run_layout import CHECKPOINT_RECORD
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.data.shard_data import ShardDataModule
from vlm_agent.training.run_folder import checkpoint_record, checkpoints
from vlm_agent.training.run_folder.checkpoint_record import DamagedError, check, read_record, seal
from vlm_agent.training.run_folder.checkpoints import best, identity_of, newest_whole, resume_point, rotate


class Killed(BaseException):
    """Ends a run where it stands, as SIGKILL does: nothing of the program's may catch it."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that nothing disturbed: its folder and its trainer."""
    folder = tmp_path_factory.mktemp("finished")
    return folder, tiny_trainer.train(folder)[0]


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """A copy of the checkpoints of that run: 4 and 6."""
    return Path(shutil.copytree(finished[0] / "checkpoints", tmp_path / "checkpoints"))


def write_checkpoint(folder: Path, step: int, validation: dict | None = None) -> Path:
    """Writes a complete checkpoint of one file and returns its folder."""
    checkpoint = folder / f"checkpoint-{step}"
    (checkpoint / "global_step").mkdir(parents=True)
    (checkpoint / "global_step" / "rank_0.pt").write_bytes(bytes(range(100)))
    seal(checkpoint, step, 4 * step, IDENTITY, validation)
    return checkpoint


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_checkpoint_records_its_files_its_position_in_the_stream_and_its_run(folder):
    record = read_record(folder / "checkpoint-6")
    assert record["files"].keys() == names(folder / "checkpoint-6") - {CHECKPOINT_RECORD}
    assert {"model.safetensors", "optimizer.pt", "rng_state_0.pth"} <= record["files"].keys()
    assert (record["step"], record["packs"], record["identity"]) == (6, 24, IDENTITY)


def test_the_newest_complete_checkpoint_is_found_without_a_message(folder):
    messages = []
    assert newest_whole(folder, messages.append) == folder / "checkpoint-6"
    assert messages == []


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    assert newest_whole(tmp_path / "checkpoints", print) is None
    assert newest_whole(tmp_path, print) is None


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, truncate, empty, Path.unlink])
def test_a_damaged_checkpoint_is_reported_renamed_and_the_previous_one_is_used(folder, tmp_path, damage):
    for name in names(folder / "checkpoint-6"):
        damaged = Path(shutil.copytree(folder, tmp_path / damage.__name__ / name))
        damage(damaged / "checkpoint-6" / name)
        messages = []
        assert newest_whole(damaged, messages.append) == damaged / "checkpoint-4"
        (words,) = messages
        assert f"checkpoint-6 is damaged and not used: {name} " in words
        if damage in (truncate, empty) and name != CHECKPOINT_RECORD:
            assert " bytes instead of " in words  # detected by its size, without reading the file
        assert names(damaged) == {"checkpoint-4", "checkpoint-6.damaged"}


def test_a_flipped_bit_anywhere_in_the_record_is_detected(tmp_path):
    checkpoint = write_checkpoint(tmp_path, 2, {"eval_accuracy": 0.5, "eval_loss": 1.0})
    content = (checkpoint / CHECKPOINT_RECORD).read_bytes()
    original = json.loads(content)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        (checkpoint / CHECKPOINT_RECORD).write_bytes(changed)
        try:
            assert check(checkpoint) | {"checksum": original["checksum"]} == original
        except DamagedError:
            continue


def test_the_record_of_another_checkpoint_is_not_accepted(tmp_path):
    write_checkpoint(tmp_path, 2).rename(tmp_path / "checkpoint-8")
    messages = []
    assert newest_whole(tmp_path, messages.append) is None
    assert "whole.json belongs to checkpoint-2" in messages[0]


def test_damaged_checkpoints_of_the_same_step_do_not_replace_each_other(tmp_path):
    for _ in range(3):
        empty(write_checkpoint(tmp_path, 2) / "global_step" / "rank_0.pt")
        newest_whole(tmp_path, lambda words: None)
    assert names(tmp_path) == {f"checkpoint-2.damaged{end}" for end in ("", "-2", "-3")}


_WRITES = 3
"""Points where a save is killed: within each torch.save call, while sealing, and before the record."""


def kill_at_write(monkeypatch, number: int) -> None:
    """In the save after step 4, write `number` is cut in the middle."""
    saves = [0]
    genuine = torch.save

    def save(value, path, *args, **options):
        genuine(value, path, *args, **options)
        if "checkpoint-4" in str(path):
            saves[0] += 1
            if saves[0] == number:
                path = Path(path)
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
                raise Killed

    def cut(checkpoint, *args):
        if checkpoint.name == "checkpoint-4":
            raise Killed
        genuine_seal(checkpoint, *args)

    genuine_seal = checkpoints.seal
    monkeypatch.setattr(torch, "save", save)
    if number == _WRITES:
        monkeypatch.setattr(checkpoints, "seal", cut)


@pytest.mark.parametrize("number", range(1, _WRITES + 1))
def test_a_run_killed_while_saving_resumes_to_the_weights_of_an_uninterrupted_one(
    finished, tmp_path, monkeypatch, number
):
    with monkeypatch.context() as patch:
        kill_at_write(patch, number)
        with pytest.raises(Killed):
            tiny_trainer.train(tmp_path)
    messages = []
    resumed, _ = tiny_trainer.train(tmp_path, say=messages.append)
    assert "checkpoint-4 is damaged and not used: whole.json is missing" in messages[0]
    assert [line for line in resumed.lines if "loss" in line][2]["step"] == 3
    assert torch.equal(weights(resumed), weights(finished[1]))


def test_a_run_with_a_corrupt_newest_checkpoint_resumes_to_the_same_weights(finished, folder):
    flip(folder / "checkpoint-6" / "optimizer.pt")
    resumed, _ = tiny_trainer.train(folder.parent)
    assert torch.equal(weights(resumed), weights(finished[1]))
    assert names(folder) == {"checkpoint-4", "checkpoint-6", "checkpoint-6.damaged"}


def test_the_record_is_written_completely_or_not_at_all(tmp_path, monkeypatch):
    def fail(value, **options):
        raise Killed

    monkeypatch.setattr(checkpoint_record.json, "dumps", fail)
    with pytest.raises(Killed):
        write_checkpoint(tmp_path, 2)
    assert not (tmp_path / "checkpoint-2" / CHECKPOINT_RECORD).exists()


def test_pickles_of_a_checkpoint_are_read_without_running_code(folder, monkeypatch):
    how = {}
    genuine = torch.load

    def load(file, *args, **options):
        how[Path(file).name] = options.get("weights_only")
        return genuine(file, *args, **options)

    shutil.rmtree(folder / "checkpoint-6")
    monkeypatch.setattr(torch, "load", load)
    tiny_trainer.train(folder.parent)
    assert how == {"optimizer.pt": True, "rng_state_0.pth": True}


def test_a_finished_run_keeps_its_two_newest_checkpoints(folder):
    assert names(folder) == {"checkpoint-4", "checkpoint-6"}


def test_the_two_newest_complete_checkpoints_and_the_best_are_kept(tmp_path):
    for step, accuracy in enumerate([0.1, 0.9, 0.3, 0.4, 0.5], 1):
        write_checkpoint(tmp_path, step, {"eval_accuracy": accuracy, "eval_loss": 1.0})
    rotate(tmp_path, print)
    assert names(tmp_path) == {"checkpoint-2", "checkpoint-4", "checkpoint-5"}
    assert best(tmp_path) == tmp_path / "checkpoint-2"


def test_keep_checkpoints_sets_the_number_of_checkpoints(tmp_path):
    for step in range(1, 6):
        write_checkpoint(tmp_path, step)
    rotate(tmp_path, print, newest=4)
    assert names(tmp_path) == {f"checkpoint-{step}" for step in (2, 3, 4, 5)}


def test_among_equally_accurate_checkpoints_the_best_has_the_lowest_loss(tmp_path):
    for step, loss in enumerate([2.0, 1.0, 3.0], 1):
        write_checkpoint(tmp_path, step, {"eval_accuracy": 0.5, "eval_loss": loss})
    write_checkpoint(tmp_path, 4)
    assert best(tmp_path) == tmp_path / "checkpoint-2"


def test_incomplete_checkpoints_do_not_count_as_kept(tmp_path):
    for step in (2, 4, 6, 8):
        write_checkpoint(tmp_path, step)
    for step in (4, 8):
        (tmp_path / f"checkpoint-{step}" / CHECKPOINT_RECORD).unlink()
    rotate(tmp_path, print)
    assert names(tmp_path) == {"checkpoint-2", "checkpoint-4", "checkpoint-6", "checkpoint-8"}
    write_checkpoint(tmp_path, 10)
    messages = []
    rotate(tmp_path, messages.append)
    assert names(tmp_path) == {"checkpoint-6", "checkpoint-8", "checkpoint-10"}


def test_the_only_complete_checkpoint_is_never_removed(tmp_path):
    for step in (2, 4, 6):
        write_checkpoint(tmp_path, step)
    for step in (4, 6):
        (tmp_path / f"checkpoint-{step}" / CHECKPOINT_RECORD).unlink()
    rotate(tmp_path, print)
    assert newest_whole(tmp_path, lambda words: None) == tmp_path / "checkpoint-2"


def test_a_damaged_checkpoint_is_removed_with_a_message_after_two_newer_complete_ones(tmp_path):
    write_checkpoint(tmp_path, 2).rename(tmp_path / "checkpoint-2.damaged")
    write_checkpoint(tmp_path, 4)
    rotate(tmp_path, print)
    assert "checkpoint-2.damaged" in names(tmp_path)
    write_checkpoint(tmp_path, 6)
    messages = []
    rotate(tmp_path, messages.append)
    assert names(tmp_path) == {"checkpoint-4", "checkpoint-6"}
    assert "checkpoint-2.damaged is removed" in messages[0]


def test_a_kill_while_a_checkpoint_is_removed_leaves_it_incomplete(tmp_path, monkeypatch):
    for step in (2, 4, 6):
        write_checkpoint(tmp_path, step)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            rotate(tmp_path, print)
    with pytest.raises(DamagedError):
        check(tmp_path / "checkpoint-2")
    assert newest_whole(tmp_path, print) == tmp_path / "checkpoint-6"
    rotate(tmp_path, print)
    assert names(tmp_path) == {"checkpoint-4", "checkpoint-6"}


def test_another_runs_checkpoint_is_refused_with_every_difference(folder):
    with pytest.raises(TrainingError) as error:
        resume_point(folder, {"seed": 1, "training.optimizer.learning_rate": 0.1, "new": 2}, print)
    words = str(error.value)
    assert "seed: 0 in the checkpoint, 1 now" in words
    assert "new: None in the checkpoint, 2 now" in words
    assert "learning_rate" not in words


def test_the_identity_of_a_run_is_recipe_data_and_rows_per_step(tmp_path):
    shards = tiny.write_shards(tmp_path / "shards", [tiny.episode()])
    content = tiny.recipe(shards, tmp_path / "run")

    def identity(rank_count: int = 1, **training) -> dict:
        recipe = Recipe(**content | {"training": content["training"] | training})
        return identity_of(recipe, ShardDataModule(recipe).data_digest, rank_count)

    plain = identity()
    assert plain == identity(log_steps=5, save_steps=7, save_seconds=9)
    assert json.loads(json.dumps(plain)) == plain
    assert identity(2, accumulation=2) == identity(1, accumulation=4) != plain
    assert identity(steps=4) != plain
    manifest = shards / "manifest.json"
    write_json(manifest, read_checked(manifest, "") | {"converted": "again"})
    assert identity() != plain


def test_the_identity_of_a_run_includes_the_content_of_its_deepspeed_file(tmp_path):
    shards, file = tiny.write_shards(tmp_path / "shards", [tiny.episode()]), tmp_path / "zero.json"
    content = tiny.recipe(shards, tmp_path / "run")
    content["training"] |= {"optimizer": {"name": "adamw"}, "deepspeed": str(file)}
    recipe = Recipe(**content)

    def identity(stage: int) -> dict:
        file.write_text(json.dumps({"zero_optimization": {"stage": stage}}))
        return identity_of(recipe, "", 2)

    assert identity(2) == identity(2) != identity(3)


def test_the_best_validated_checkpoint_is_saved_between_regular_saves(tmp_path, monkeypatch):
    accuracies = iter([0.2, 0.9, 0.3, 0.9, 0.1, 0.4])
    validation = SimpleNamespace(run=lambda model, device: {"eval_accuracy": next(accuracies), "eval_loss": 1.0})
    monkeypatch.setattr(tiny_trainer, "VALIDATION", validation)
    tiny_trainer.train(tmp_path, validate=1, save_steps=STEPS)
    found = best(tmp_path / "checkpoints")
    assert found.name == "checkpoint-2"
    assert check(found)["validation"]["eval_accuracy"] == 0.9


def test_a_checkpoint_records_no_validation_of_an_earlier_step(tmp_path, monkeypatch):
    accuracies = iter([0.5, 0.1])
    validation = SimpleNamespace(run=lambda model, device: {"eval_accuracy": next(accuracies), "eval_loss": 1.0})
    monkeypatch.setattr(tiny_trainer, "VALIDATION", validation)
    tiny_trainer.train(tmp_path, validate=4, save_steps=5)
    folder = tmp_path / "checkpoints"
    recorded = {name: read_record(folder / name)["validation"] for name in names(folder)}
    assert recorded["checkpoint-5"] is None, "the last validation was at step 4"
    assert recorded["checkpoint-4"]["eval_accuracy"] == 0.5


def test_every_file_and_folder_of_a_checkpoint_is_durable_before_its_record_is_renamed(tmp_path, monkeypatch):
    events = record_syncs_and_renames(monkeypatch)
    checkpoint = write_checkpoint(tmp_path, 2)
    (renamed,) = [
        at for at, (what, path) in enumerate(events) if what == "rename" and path == checkpoint / CHECKPOINT_RECORD
    ]
    files = {checkpoint / "global_step" / "rank_0.pt", checkpoint / "global_step", checkpoint}
    assert files <= {path for what, path in events[:renamed] if what == "sync"}


def test_a_checkpoint_is_saved_when_the_last_one_is_old_however_long_a_step_takes(tmp_path, monkeypatch):
    clock = iter(range(0, 10**6, 40))  # 40 seconds between two looks at it
    monkeypatch.setattr(checkpoints, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    tiny_trainer.train(tmp_path, save_steps=None, save_seconds=100)
    assert names(tmp_path / "checkpoints") == {"checkpoint-3", "checkpoint-6"}


def test_the_last_step_is_saved_also_where_time_alone_decides(tmp_path):
    tiny_trainer.train(tmp_path, save_steps=None, save_seconds=10**6)
    assert names(tmp_path / "checkpoints") == {"checkpoint-6"}


def test_ranks_divide_the_reading_of_a_checkpoint_and_agree_on_it(tmp_path):
    """Each rank reads the file that it wrote; both refuse a file that only one found damaged."""
    printed = two_ranks.run(
        tmp_path,
        """
from vlm_agent.training.run_folder import checkpoint_record
from vlm_agent.training.run_folder.checkpoint_record import seal
from vlm_agent.training.run_folder.checkpoints import resume_point

read, genuine = [], checkpoint_record._digest
checkpoint_record._digest = lambda path, durable: read.append(path.name) or genuine(path, durable)
checkpoint = folder / "checkpoints" / "checkpoint-2"
checkpoint.mkdir(parents=True, exist_ok=True)
mine = checkpoint / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
mine.write_bytes(bytes([rank]) * 1000)
if rank == 0:
    for number in range(4):
        (checkpoint / f"model-{number}.safetensors").write_bytes(bytes(100))
ranks.wait()
seal(checkpoint, 2, 8, {"seed": 0}, None)
own = [mine.name, *([f"model-{number}.safetensors" for number in range(4)] if rank == 0 else [])]
assert sorted(read) == sorted(own)  # each by the rank that wrote it, which alone can make it durable
ranks.wait()
read.clear()
assert resume_point(folder / "checkpoints", {"seed": 0}, print) == checkpoint
assert sorted(read) == sorted(own)
if rank == 1:
    mine.write_bytes(bytes(1000))
ranks.wait()
assert resume_point(folder / "checkpoints", {"seed": 0}, print) is None
print("agreed")
""",
    )
    assert all("agreed" in words for words in printed)
    assert "rank_1_mp_rank_00_optim_states.pt is damaged" in printed[0]
    assert "is damaged" not in printed[1]
    assert names(tmp_path / "checkpoints") == {"checkpoint-2.damaged"}


def test_a_temporary_read_error_does_not_count_as_damage(folder, monkeypatch):
    def unreadable(file, kind):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(checkpoint_record.hashlib, "file_digest", unreadable)
    with pytest.raises(OSError, match="cannot be read: Stale file handle"):
        resume_point(folder, IDENTITY, print)
    assert (folder / "checkpoint-6").exists()


def test_a_permanent_read_error_counts_as_damage(folder, monkeypatch):
    def unreadable(file, kind):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint_record.hashlib, "file_digest", unreadable)
    with pytest.raises(DamagedError, match="cannot be read: Input/output error"):
        check(folder / "checkpoint-6")
    with pytest.raises(OSError, match="cannot be read: Input/output error"):
        seal(folder / "checkpoint-6", 6, 24, IDENTITY, None)


def test_a_checkpoint_of_another_recipe_value_is_refused_by_its_key(tmp_path):
    recipe = Recipe(**tiny.recipe(tmp_path / "shards", tmp_path / "run"))
    now = identity_of(recipe, "data", 1)
    (tmp_path / "checkpoint-3").mkdir()
    (tmp_path / "checkpoint-3" / "weights").write_bytes(b"w")
    seal(tmp_path / "checkpoint-3", 3, 12, now, None)
    assert resume_point(tmp_path, now, print, recipe) == tmp_path / "checkpoint-3"
    before = now["action_language.bins"]
    with pytest.raises(TrainingError, match=f"bins: {before} in the checkpoint, 7 now"):
        resume_point(tmp_path, now | {"action_language.bins": 7}, print, recipe)


def test_the_same_data_may_lie_in_another_folder(tmp_path):
    recipe = Recipe(**tiny.recipe(tmp_path / "shards", tmp_path / "run"))
    for key in ("shards", "features", "chats"):
        moved = recipe.model_copy(update={"data": recipe.data.model_copy(update={key: "elsewhere"})})
        assert identity_of(moved, "data", 1) == identity_of(recipe, "data", 1), key


def test_a_checkpoint_that_records_where_its_chats_were_is_resumed(tmp_path):
    recipe = Recipe(**tiny.recipe(tmp_path / "shards", tmp_path / "run"))
    now = identity_of(recipe, "data", 1)
    (tmp_path / "checkpoint-3").mkdir()
    (tmp_path / "checkpoint-3" / "weights").write_bytes(b"w")
    seal(tmp_path / "checkpoint-3", 3, 12, now | {"data.chats": "before"}, None)
    assert resume_point(tmp_path, now, print, recipe) == tmp_path / "checkpoint-3"
