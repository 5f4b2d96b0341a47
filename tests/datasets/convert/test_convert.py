"""Files become shards: their content, the effect of damage, and refused options."""

import errno
import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.data.conversions import COUNTS, STEPS, converted, tree, write_files
from helpers.data.example_message import Example
from helpers.data.made_episodes import ACTIONS, assert_same_episode, made_episode, made_screen

from vlm_agent.cli import FAILED, OK, QUARANTINED, main
from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.formats.tfrecord import write_records
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.sources.aitw import encode_step
from vlm_agent.datasets.sources.registry import SOURCES
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import DONE, Heading, TraceStep
from vlm_agent.errors import DatasetError


def test_a_folder_becomes_shards_that_hold_its_episodes(source, tmp_path):
    summary, manifest, lines, printed = converted(source, output=tmp_path / "out")
    dataset = ShardDataset(tmp_path / "out")
    assert dataset.ids == ("a", "b", "c", "d")
    assert set(dataset.splits) == {"train"}
    for id_, episode in zip("abcd", dataset, strict=True):
        assert_same_episode(episode, made_episode(id_, episode.subset))
    assert not lines and summary.quarantined == 0
    assert [file["shard"] for file in manifest["files"]] == [
        "general/general-00000-of-00001.parquet",
        "single/single-00000-of-00001.parquet",
    ]
    assert "Converted 2 file(s)" in printed and "…" not in printed


def test_the_manifest_records_inputs_and_options(source, tmp_path):
    _, manifest, *_ = converted(source, output=tmp_path / "out")
    file = source / "general/general-00000-of-00001"
    assert manifest["files"][0]["size"] == file.stat().st_size
    assert len(manifest["files"][0]["sha256"]) == 64
    assert manifest["source"] == "aitw"
    assert manifest["options"] == {"splits": [], "mixture": {}, "screens": {"name": "png"}}


def test_the_real_episode_is_converted(shared, tmp_path):
    summary, *_ = converted(shared / "data/aitw_tfrecord", output=tmp_path / "out")
    assert [summary.total(name) for name in COUNTS] == [4, 4, 0, 0, 1]
    assert ShardDataset(tmp_path / "out", subset="google_apps")[0].goal.startswith('open app "Clock"')


def test_the_same_conversion_gives_the_same_bytes_with_any_number_of_workers(source, tmp_path):
    for name, workers in (("one", 1), ("again", 1), ("two", 2)):
        converted(source, output=tmp_path / name, workers=workers)
    assert tree(tmp_path / "one") == tree(tmp_path / "again") == tree(tmp_path / "two")


def test_a_folder_whose_name_arrow_cannot_open_is_named(source, tmp_path):
    output = Path(os.fsdecode(os.fsencode(tmp_path) + b"/out\xff"))
    for workers in (1, 2):
        with pytest.raises(DatasetError, match=r"out\\xff.* is not valid UTF-8; rename it"):
            converted(source, output=output, workers=workers)


def test_a_file_named_twice_is_read_once(source, tmp_path):
    summary, *_ = converted(source, source / "single/single-00000-of-00001", output=tmp_path / "out")
    assert summary.total("episodes_written") == 4


def test_folders_that_are_links_are_searched_and_a_link_to_themselves_is_not_followed_for_ever(source, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "general").symlink_to(source / "general")
    (folder / "single").symlink_to(source / "single")
    (folder / "here").symlink_to(folder)
    summary, *_ = converted(folder, output=tmp_path / "out")
    assert summary.total("episodes_written") == 4


def test_what_a_killed_process_left_half_written_beside_the_data_is_not_converted(source, tmp_path):
    write_files(source / ".data.partial", "x", "install")
    summary, *_ = converted(source, output=tmp_path / "out")
    assert summary.total("episodes_written") == 4


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("nothing")], ids=["pipe", "broken link"])
def test_a_data_file_name_that_is_not_a_file_is_an_error(source, tmp_path, make):
    path = source / "install-00000-of-00001"
    make(path)
    for given in (source, path):
        with pytest.raises(
            DatasetError, match=f"{path} (is not a file, or a link to a file that does not exist|does not exist)"
        ):
            convert("aitw", [given], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_output_folder_is_fine(source, tmp_path):
    (tmp_path / "out").mkdir()
    summary, *_ = converted(source, output=tmp_path / "out")
    assert summary.total("episodes_written") == 4


def _cut(data):
    return data[: len(data) * 3 // 4]


def _flip_in_payload(data):
    raw = bytearray(gzip.decompress(data))
    raw[-100] ^= 1
    return bytes(raw)


def _flip_in_framing(data):
    raw = bytearray(gzip.decompress(data))
    length = int.from_bytes(raw[:8], "little")
    raw[length + 16] ^= 1
    return bytes(raw)


def _flip_in_gzip(data):
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0xFF
    return bytes(flipped)


@pytest.mark.parametrize(
    ("damage", "reason", "kept", "cut_short"),
    [
        (_cut, "truncated", ["a"], 1),
        (_flip_in_payload, "the checksum of the record's payload is wrong", ["a"], 0),
        (_flip_in_framing, "the checksum of the record's length is wrong", [], 1),
        (_flip_in_gzip, "", None, None),
        (lambda data: b"", "the file is empty", [], 1),
        (lambda data: b"this is not it", "not a TFRecord", [], 1),
        (lambda data: data[:-4], "gzip stream is truncated", ["a", "b"], 1),
    ],
)
def test_damage_is_reported_with_file_and_record_and_costs_no_other_episode(
    source, tmp_path, damage, reason, kept, cut_short
):
    path = source / "general/general-00000-of-00001"
    path.write_bytes(damage(path.read_bytes()))
    summary, manifest, lines, printed = converted(source, output=tmp_path / "out")
    ids = ShardDataset(tmp_path / "out").ids
    assert ids[-2:] == ("c", "d")
    assert kept is None or list(ids[:-2]) == kept
    assert summary.quarantined > 0
    assert cut_short in (None, manifest["files_cut_short"])
    assert any(reason in line["reason"] for line in lines)
    assert all(line["file"] == str(path) for line in lines)
    assert f"{path}: record {lines[0]['record']} (at byte {lines[0]['offset']}): {lines[0]['reason']}" in printed
    for id_, episode in zip(ids, ShardDataset(tmp_path / "out"), strict=True):
        assert_same_episode(episode, made_episode(id_, episode.subset))


def test_a_damaged_file_is_kept_track_of_by_the_digest_of_all_its_bytes(source, tmp_path):
    path = source / "general/general-00000-of-00001"
    path.write_bytes(path.read_bytes() + b"garbage behind the end")
    _, manifest, lines, _ = converted(source, output=tmp_path / "out")
    assert manifest["files"][0]["size"] == path.stat().st_size
    assert manifest["episodes_written"] == 4 and len(lines) == 1


def test_a_file_that_cannot_be_read_stops_no_other_and_is_tried_again(source, tmp_path, monkeypatch, capsys):
    undisturbed = tmp_path / "undisturbed"
    converted(source, output=undisturbed)
    opened = Path.open

    def no_medium(self, *arguments, **options):
        if self.name == "general-00000-of-00001":
            raise OSError(errno.EIO, "Input/output error", str(self))
        return opened(self, *arguments, **options)

    arguments = ["convert", "--input", str(source), "--output", str(tmp_path / "out"), "--workers", "1"]
    with monkeypatch.context() as broken:
        broken.setattr(Path, "open", no_medium)
        assert main(arguments) == FAILED
    printed = capsys.readouterr().err
    assert "general-00000-of-00001: Input/output error" in printed
    assert "1 input(s) could not be converted; the others are" in printed
    assert (tmp_path / "out/single/single-00000-of-00001.parquet").is_file()
    assert not (tmp_path / "out/manifest.json").exists()
    converted(source, output=tmp_path / "out")
    assert tree(tmp_path / "out") == tree(undisturbed)


def test_a_file_that_a_worker_cannot_read_stops_no_other(source, tmp_path):
    path = write_files(tmp_path / "more", "x y", "install") / "install-00000-of-00002"
    path.unlink()
    path.symlink_to("/proc/self/mem")  # a file whose first byte nobody can read, root or not
    with pytest.raises(DatasetError, match=r"Input/output error\n1 input\(s\) could not be converted"):
        convert("aitw", [source, path, tmp_path / "more"], tmp_path / "out", workers=2)
    shards = {path.name for path in (tmp_path / "out").glob("*/*.parquet")}
    assert shards == {f"{name}.parquet" for name in (
        "general-00000-of-00001", "single-00000-of-00001", "install-00001-of-00002",
    )}  # fmt: skip


def test_of_many_files_that_cannot_be_read_the_first_ten_are_named(tmp_path, monkeypatch):
    write_files(tmp_path / "in", " ".join("abcdefghijkl"))

    def unmounted(input_, files):
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected", str(input_.files[0]))

    monkeypatch.setitem(SOURCES, "aitw", replace(SOURCES["aitw"], read=unmounted))
    with pytest.raises(DatasetError, match=r"endpoint is not connected\n… and 2 more\n12 input\(s\) could not be"):
        convert("aitw", [tmp_path / "in"], tmp_path / "out", workers=1)


def test_more_bad_records_than_allowed_fail_the_run_and_a_larger_limit_resumes_it(source, tmp_path, capsys):
    path = source / "general/general-00000-of-00001"
    path.write_bytes(_flip_in_payload(path.read_bytes()))  # costs 8 of 32 steps
    arguments = ["convert", "--input", str(source), "--output", str(tmp_path / "out"), "--workers", "1"]
    assert main([*arguments, "--max-bad-fraction", "0.2"]) == FAILED
    assert "8 of 32 steps read are bad, more than --max-bad-fraction 0.2 allows" in capsys.readouterr().err
    assert not (tmp_path / "out/manifest.json").exists()
    assert main([*arguments, "--max-bad-fraction", "0.25"]) == QUARANTINED
    converted(source, output=tmp_path / "plain")
    assert tree(tmp_path / "out") == tree(tmp_path / "plain")


def test_files_that_are_no_tfrecords_count_by_their_bytes_towards_the_fraction(source, tmp_path, capsys):
    path = source / "general/general-00000-of-00001"
    lost, size = len(path.read_bytes()), sum(file.stat().st_size for file in source.glob("*/*-of-*"))
    path.write_bytes(b"<!DOCTYPE html>".ljust(lost))
    arguments = ["--output", str(tmp_path / "out"), "--workers", "1", "--max-bad-fraction"]
    convert_part = ["convert", "--input", str(source), "--shard-index", "0", "--shard-count", "2", *arguments]
    reason = (
        f"{lost:,} of {size:,} bytes are of files that cannot be read to their end, general-00000-of-00001 first, "
        "more than --max-bad-fraction 0.3 allows"
    )
    assert main([*convert_part, "1"]) == QUARANTINED
    assert main(["convert", "--input", str(source), *arguments, "0.3"]) == FAILED
    assert reason in capsys.readouterr().err
    assert main(["convert", "--finish", *arguments, "0.3"]) == FAILED
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "out/manifest.json").exists()
    assert main(["convert", "--finish", *arguments, "0.6"]) == QUARANTINED


def test_one_unreadable_episode_of_an_input_does_not_count_as_all_of_it(tmp_path):
    for name in "abc":
        with TraceWriter(tmp_path / "in" / name, Heading(name, "go", "agent", "phone")) as trace:
            trace.step(TraceStep(0, trace.screen(0, made_screen()).name, "", (), "", ACTIONS[0]))
            trace.outcome(0, DONE)
    (tmp_path / "in/a/trace.json").write_text("{")
    _, manifest, *_ = converted(tmp_path / "in", output=tmp_path / "out", source="trace", max_bad_fraction=0.4)
    assert (manifest["files_cut_short"], manifest["files"][0]["size_cut_short"]) == (1, 1)


def test_bad_requests_are_refused_before_anything_is_written(source, tmp_path):
    output = tmp_path / "out"
    (tmp_path / "empty").mkdir()
    (source / "part-00000-of-00001").write_bytes(b"")
    other = tmp_path / "general-00000-of-00001"
    other.write_bytes(b"")
    (tmp_path / "splits.json").write_text("{")
    general = source / "general"
    for arguments, options, reason in [
        (("aitv", [general], output), {}, "source 'aitv' is unknown; choose one of aitw"),
        (("aitw", [], output), {}, "no inputs"),
        (("aitw", [tmp_path / "empty"], output), {}, "empty contains no file of source aitw"),
        (("aitw", [tmp_path / "nowhere"], output), {}, "nowhere does not exist"),
        (("aitw", [source], output), {}, "cannot determine the subset of .*part-00000-of-00001"),
        (("aitw", [general, other], output), {}, "would both become general/general-00000-of-00001.parquet"),
        (("aitw", [general], output, [tmp_path / "splits.json"]), {}, "splits.json is damaged"),
        (("aitw", [general], other), {}, "is a file; a conversion needs a folder"),
        (("aitw", [general], output), {"mixture": {"googleapps": 0.1}}, "the mixture names googleapps"),
        (("aitw", [general], output), {"mixture": {"general": 1.5}}, "fraction of general is 1.5"),
    ]:
        with pytest.raises(DatasetError, match=reason):
            convert(*arguments, **options)
        assert not output.exists()


@pytest.mark.parametrize("left", ["manifest.json", "general", ".git"])
def test_an_output_that_holds_anything_else_is_refused_and_left_alone(source, tmp_path, left):
    (tmp_path / "out" / left).mkdir(parents=True)
    with pytest.raises(DatasetError, match="is not empty and does not hold a conversion"):
        convert("aitw", [source], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [left]


def test_a_stopped_conversion_has_no_manifest(source, tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr("vlm_agent.datasets.convert.write_results", stop)
        with pytest.raises(KeyboardInterrupt):
            convert("aitw", [source], tmp_path / "out", workers=1)
    with pytest.raises(DatasetError, match=r"it is incomplete; run the same `vlm-agent convert` again to resume"):
        ShardDataset(tmp_path / "out")


def test_aitz_becomes_shards_with_the_split_of_its_folders(shared, tmp_path):
    (original,) = (shared / "data/aitz_episode").glob("*.json")
    for split, number in (("train", "1"), ("val", "2"), ("test", "3")):
        _copy_aitz_episode(original, tmp_path / "aitz" / split / "google_apps", number)
    summary, manifest, lines, _ = converted(tmp_path / "aitz", output=tmp_path / "out", source="aitz")
    assert [summary.total(name) for name in COUNTS] == [12, 12, 0, 0, 3] and not lines
    assert [file["shard"] for file in manifest["files"]] == [
        f"google_apps/{split}-google_apps-00000-of-00001.parquet" for split in ("test", "train", "validation")
    ]
    dataset = ShardDataset(tmp_path / "out")
    assert dict(zip(dataset.ids, dataset.splits, strict=True)) == {"1": "train", "2": "validation", "3": "test"}
    recorded = json.loads(original.read_text())
    assert [step.notes["think"] for step in dataset[0].steps] == [step["coat_action_think"] for step in recorded]


def _copy_aitz_episode(original: Path, folder: Path, number: str) -> None:
    stem = f"GOOGLE_APPS-{number}"
    (folder / stem).mkdir(parents=True)
    steps = [step | {"episode_id": number} for step in json.loads(original.read_text())]
    for at, step in enumerate(steps):
        screen = original.parent / Path(step["image_path"]).name
        step["image_path"] = f"{stem}_{at}.png"
        (folder / stem / step["image_path"]).write_bytes(screen.read_bytes())
    (folder / stem / f"{stem}.json").write_text(json.dumps(steps))


@pytest.mark.parametrize("workers", [1, 2])
def test_points_a_hair_outside_the_screen_cost_no_episode_and_are_counted(tmp_path, workers):
    records = {}
    for id_, touch in {"a": [-0.0011, 0.5], "b": [0.5, 1.5], "c": [0.5, 1.002]}.items():
        first, *others = (encode_step(made_episode(id_), number) for number in range(STEPS))
        message = Example.FromString(first)
        message.features.feature["results/yx_touch"].float_list.value[:] = touch
        records[id_] = [message.SerializeToString(), *others]
    (tmp_path / "in").mkdir()
    write_records(tmp_path / "in" / "general-00000-of-00002", records["a"] + records["b"])
    write_records(tmp_path / "in" / "general-00001-of-00002", records["c"])
    _, manifest, lines, printed = converted(tmp_path / "in", output=tmp_path / "out", workers=workers)
    dataset = ShardDataset(tmp_path / "out")
    assert sorted(dataset.ids) == ["a", "c"]
    assert [dataset[n].steps[0].action.touch_yx for n in range(2)] == [(0.0, 0.5), (0.5, 1.0)]
    assert manifest["points_moved"] == 2
    assert [file["points_moved"] for file in manifest["files"]] == [1, 1]
    assert len(lines) == STEPS
    assert "2 point(s) outside the screen by at most 0.01 of it were moved to its edge" in printed
    assert main(["inspect", str(tmp_path / "out"), "--html", str(tmp_path / "page.html")]) == OK
    assert "points moved</dt><dd>2<" in (tmp_path / "page.html").read_text()
