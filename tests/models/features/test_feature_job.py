"""`vlm-agent features`: resumed after a kill, divided among tasks, refused where it cannot be completed."""

import json
import os
import shutil
import signal
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from helpers.data.feature_shards import write_several
from helpers.models import vision_towers
from helpers.training import forks

from vlm_agent.cli import FAILED, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import DatasetError
from vlm_agent.models.features import job
from vlm_agent.models.features.job import load_episode

SHARDS = 2


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return vision_towers.write("dinov2", tmp_path_factory.mktemp("dinov2"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_several(tmp_path_factory.mktemp("data") / "shards")


@pytest.fixture(scope="module")
def words(shards, checkpoint):
    """The command without --output."""
    return ["features", str(shards), "--extractor", "dinov2", "--checkpoint", str(checkpoint), "--batch-size", "4"]


@pytest.fixture(scope="module")
def uninterrupted(words, tmp_path_factory):
    output = tmp_path_factory.mktemp("whole") / "out"
    assert main([*words, "--output", str(output)]) == 0
    return _tree(output)


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _output(words, *more):
    return [*words, "--output", *map(str, more)]


def test_the_output_does_not_depend_on_the_number_of_workers(words, uninterrupted, tmp_path):
    assert main(_output(words, tmp_path / "out", "--workers", 5)) == 0
    assert _tree(tmp_path / "out") == uninterrupted


_KILLED = """
import os, signal, sys
from vlm_agent.cli import main
from vlm_agent.models.features import job
batches, extract = int(sys.argv[1]), job.ShardExtraction._features
def dying(self, batch):
    global batches
    if batches == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    batches -= 1
    return extract(self, batch)
job.ShardExtraction._features = dying
sys.exit(main(sys.argv[2:]))
"""


def test_a_killed_extraction_resumes_and_ends_with_the_same_bytes(words, uninterrupted, tmp_path, monkeypatch):
    command = _output(words, tmp_path / "out")
    (tmp_path / "killed.py").write_text(_KILLED)
    for batches in (4, 1):  # in the second shard; and again in the resumed one
        died = forks.start(tmp_path / "killed.py", batches, *command, output=tmp_path / "printed")
        assert died.wait() == -signal.SIGKILL, (tmp_path / "printed").read_text()
        assert not (tmp_path / "out" / "manifest.json").exists()
        assert list((tmp_path / "out").rglob(".*.partial"))
    started = []
    one_shard = job.ShardExtraction.extract
    monkeypatch.setattr(
        job.ShardExtraction, "extract", lambda self, *of: (started.append(of[0]), one_shard(self, *of))[1]
    )
    assert main(command) == 0
    assert started == ["single/single-00000-of-00001.parquet"]
    assert _tree(tmp_path / "out") == uninterrupted


def test_a_complete_extraction_is_not_repeated(words, tmp_path, monkeypatch):
    assert main(_output(words, tmp_path / "out")) == 0
    before = _tree(tmp_path / "out")
    monkeypatch.setattr(job.ShardExtraction, "extract", None)
    assert main(_output(words, tmp_path / "out")) == 0
    assert _tree(tmp_path / "out") == before


@pytest.mark.parametrize("count", [2, 3])
def test_the_tasks_of_an_array_share_the_shards_and_finish_completes_them(
    words, uninterrupted, tmp_path, capsys, count
):
    output, extracted = tmp_path / "out", []
    for task in range(count):
        before = set(output.rglob("*.npy"))
        assert main(_output(words, output, "--shard-index", task, "--shard-count", count)) == 0
        extracted.append(set(output.rglob("*.npy")) - before)
        assert not (output / "manifest.json").exists()
    assert [len(files) for files in extracted] == [3, 3, 0][:count]
    assert main(["features", "--finish", "--output", str(output)]) == 0
    assert _tree(output) == uninterrupted


def test_a_task_removes_what_a_killed_one_left_of_its_shards(words, tmp_path):
    stale = tmp_path / "out/general/.general-00000-of-00001.npy.0123abcd.partial"
    assert main(_output(words, tmp_path / "out", "--shard-index", 1, "--shard-count", 2)) == 0
    stale.parent.mkdir()
    stale.touch()
    os.utime(stale, (0, 0))
    assert main(_output(words, tmp_path / "out", "--shard-index", 0, "--shard-count", 2)) == 0
    assert not stale.exists()


def test_finish_before_all_tasks_names_the_missing_shards(words, tmp_path, capsys):
    assert main(_output(words, tmp_path / "out", "--shard-index", 0, "--shard-count", 2)) == 0
    assert main(["features", "--finish", "--output", str(tmp_path / "out")]) == FAILED
    complaint = capsys.readouterr().err
    assert "1 of 2 shards are not extracted yet (single/single-00000-of-00001.parquet)" in complaint


def test_after_the_shards_moved_finish_names_the_command_that_completes_the_extraction(
    words, shards, uninterrupted, tmp_path, capsys
):
    shutil.copytree(shards, tmp_path / "before")
    words = ["features", str(tmp_path / "before"), *words[2:], "--output", str(tmp_path / "out")]
    assert main([*words, "--shard-index", "0", "--shard-count", "1"]) == 0
    (tmp_path / "before").rename(tmp_path / "after")
    assert main(["features", "--finish", "--output", str(tmp_path / "out")]) == FAILED
    complaint = f"{tmp_path / 'before'} is not there any more; run `vlm-agent features` without --finish, with the"
    assert complaint in capsys.readouterr().err
    words[1] = str(tmp_path / "after")
    assert main(words) == 0
    assert (tmp_path / "out/manifest.json").read_bytes() == uninterrupted["manifest.json"]


def test_finish_in_a_folder_without_an_extraction_is_an_error(tmp_path, capsys):
    assert main(["features", "--finish", "--output", str(tmp_path)]) == FAILED
    assert f"{tmp_path} does not hold an extraction of features" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--form", "patches"], 'extractor.form was "pooled", and is "patches"'),
        (["--bf16"], 'extractor.precision was "float32", and is "bfloat16"'),
        (["--batch-size", "8"], "batch_size was 4, and is 8"),
    ],
)
def test_other_settings_are_refused_in_the_same_folder(words, tmp_path, capsys, change, complaint):
    command = _output(words, tmp_path / "out")
    assert main(command) == 0
    assert main([*command, *change]) == FAILED
    assert complaint in capsys.readouterr().err


def test_a_folder_with_other_files_is_refused(words, tmp_path, capsys):
    (tmp_path / "notes.txt").touch()
    assert main(_output(words, tmp_path)) == FAILED
    assert "is not empty and does not hold an extraction of features" in capsys.readouterr().err


def test_a_disk_without_room_is_refused_before_weights_are_read(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: namedtuple("usage", "total used free")(0, 0, 100))
    monkeypatch.setattr("vlm_agent.models.features.job.load_extractor", None)
    assert main(_output(words, tmp_path / "out")) == FAILED
    printed = capsys.readouterr()
    size = 20 * (32 * 2 + 16 + 4) + SHARDS * 3 * 128
    assert f"{size:,} bytes" in printed.out
    assert f"needs {size:,} more bytes, and its disk has 100 free" in printed.err
    assert not (tmp_path / "out").exists()


def test_a_disk_that_fills_up_later_is_an_error_because_the_files_grow_by_writing(words, tmp_path, monkeypatch):
    """Pages of a mapped file get their blocks when they are written: without any left, the kernel sends SIGBUS."""
    sizes, features = [], job.ShardExtraction._features

    def watched(extraction, batch):
        sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("*.partial")))
        return features(extraction, batch)

    monkeypatch.setattr(job.ShardExtraction, "_features", watched)
    assert main(_output(words, tmp_path / "out")) == 0
    assert max(sizes) < job._bytes(10, (1, 32))


def test_features_that_are_not_finite_are_an_error_that_names_the_step(words, shards, tmp_path, capsys):
    damaged = vision_towers.write("dinov2", tmp_path / "damaged")
    weights = safetensors.numpy.load_file(damaged / "model.safetensors")
    weights["layernorm.bias"][3] = np.inf
    safetensors.numpy.save_file(weights, damaged / "model.safetensors", {"format": "pt"})
    command = ["features", str(shards), "--extractor", "dinov2", "--checkpoint", str(damaged)]
    assert main([*command, "--output", str(tmp_path / "out")]) == FAILED
    assert f"{shards}: episode 0, step 0: the features of dinov2 are not finite" in capsys.readouterr().err
    assert not list((tmp_path / "out").rglob("*.npy"))


@pytest.mark.parametrize("damage", ["half", "empty", "huge"])
def test_a_damaged_screen_is_an_error_that_names_episode_and_step(shards, tmp_path, damage):
    def damaged(image: bytes) -> bytes:
        if damage == "huge":  # the width and the height in a PNG's header
            return image[:16] + 2 * (1 << 16).to_bytes(4, "big") + image[24:]
        return image[: len(image) // 2] if damage == "half" else b""

    dataset = ShardDataset(shards)
    row = dataset.row(1)
    row["steps"][2]["screenshot"]["bytes"] = damaged(row["steps"][2]["screenshot"]["bytes"])
    dataset.row = lambda index, columns=None: row
    with pytest.raises(DatasetError, match=f"{shards}: episode {dataset.ids[1]}, step 2: the screen cannot be decoded"):
        load_episode(dataset, lambda pixels: pixels, 1)


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ({"described": {}}, "described.extractor: Field required"),
        (
            {"described": {"extractor": {"extractor": 3}}},
            "described.extractor.extractor: Input should be a valid string",
        ),
    ],
)
def test_finish_names_a_damaged_plan_and_the_key(tmp_path, capsys, plan, complaint):
    (tmp_path / ".features").mkdir()
    (tmp_path / ".features/plan.json").write_text(json.dumps(plan))
    assert main(["features", "--finish", "--output", str(tmp_path)]) == FAILED
    assert f"plan.json is damaged: {complaint}; remove" in " ".join(capsys.readouterr().err.split())


def test_a_second_extraction_into_the_folder_is_refused_while_one_runs(words, tmp_path, capsys):
    from vlm_agent.models.features.job import job_of

    with job_of(tmp_path / "out").locked():
        assert main(_output(words, tmp_path / "out")) == FAILED
    assert "another process is writing an extraction of features" in capsys.readouterr().err


def test_a_crop_of_the_centre_is_reported(words, tmp_path, capsys):
    assert main(_output(words, tmp_path / "out")) == 0
    assert "dinov2 crops the centre: of screens of 64 x 32 pixels it sees 38%" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["shards"], "name a folder of shards, and --extractor or --config"),
        (["--extractor", "vit"], "name a folder of shards, and --extractor or --config"),
        (["shards", "--config", "x.yaml", "--form", "patches"], "--form is part of the recipe in --config"),
        (["shards", "--extractor", "vit", "--shard-index", "0"], "must be used together"),
        (["shards", "--finish"], "--finish reads shards and extractor from --output"),
    ],
)
def test_incomplete_options_are_refused(arguments, complaint, capsys):
    with pytest.raises(SystemExit):
        main(["features", *arguments, "--output", "out"])
    assert complaint in capsys.readouterr().err
