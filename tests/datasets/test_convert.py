import gzip
import json

import pytest
from made_episodes import assert_same_episode, made_episode
from rich.console import Console

from vlm_agent.datasets import DatasetError
from vlm_agent.datasets.aitw import write_episodes
from vlm_agent.datasets.convert import convert
from vlm_agent.datasets.shards import ShardDataset, ShardWriter

COUNTS = ("steps_read", "steps_written", "steps_quarantined", "steps_left_out", "episodes_written")
STEPS = len(made_episode())


@pytest.fixture
def source(tmp_path):
    """Two files of two episodes each, in a folder of folders, beside a split file as `simulate` writes one."""
    folder = tmp_path / "aitw"
    for subset, ids in (("general", "ab"), ("single", "cd")):
        path = folder / subset / f"{subset}-00000-of-00001"
        write_episodes(path, [made_episode(id_, subset) for id_ in ids])
    (folder / "splits.json").write_text(json.dumps({"train": ["a", "c"], "val": ["b"]}))
    return folder


def _convert(*inputs, output, splits=()):
    console = Console(width=100)
    with console.capture() as capture:
        summary = convert("aitw", inputs, output, splits, console)
    manifest = json.loads((output / "manifest.json").read_text())
    lines = [json.loads(line) for line in (output / "quarantine.jsonl").read_text().splitlines()]
    assert {name: manifest[name] for name in COUNTS} == {name: summary.total(name) for name in COUNTS}
    assert manifest["steps_quarantined"] == summary.quarantined == len(lines)
    for counts in (manifest, *manifest["files"]):
        kinds = ("steps_written", "steps_quarantined", "steps_left_out")
        assert counts["steps_read"] == sum(counts[name] for name in kinds)
    return summary, manifest, lines, capture.get()


def test_a_folder_becomes_shards_that_hold_its_episodes(source, tmp_path):
    summary, manifest, lines, printed = _convert(source, output=tmp_path / "out")
    dataset = ShardDataset(tmp_path / "out")
    assert dataset.ids == ("a", "b", "c", "d") and set(dataset.splits) == {"train"}
    assert_same_episode(dataset[2], made_episode("c", "single"))
    assert not lines and summary.quarantined == 0
    assert [file["shard"] for file in manifest["files"]] == [
        "general/general-00000-of-00001.parquet",
        "single/single-00000-of-00001.parquet",
    ]
    file = source / "general/general-00000-of-00001"
    assert manifest["files"][0]["size"] == file.stat().st_size and len(manifest["files"][0]["sha256"]) == 64
    assert manifest["options"] == {"splits": [], "image_format": "png"} and manifest["source"] == "aitw"
    assert "Converted 2 file(s)" in printed and "…" not in printed


def test_the_real_episode_is_converted(shared, tmp_path):
    summary, *_ = _convert(shared / "data/aitw_tfrecord", output=tmp_path / "out")
    assert [summary.total(name) for name in COUNTS] == [4, 4, 0, 0, 1]
    assert ShardDataset(tmp_path / "out", subset="google_apps")[0].goal.startswith('open app "Clock"')


def test_the_split_file_labels_episodes_and_leaves_the_others_out(source, tmp_path):
    summary, manifest, _, _ = _convert(source, output=tmp_path / "out", splits=[source / "splits.json"])
    dataset = ShardDataset(tmp_path / "out")
    assert dict(zip(dataset.ids, dataset.splits, strict=True)) == {"a": "train", "b": "validation", "c": "train"}
    assert summary.total("steps_left_out") == STEPS
    assert manifest["options"]["splits"][0]["name"] == "splits.json"


def test_a_file_of_which_nothing_is_kept_has_no_shard(source, tmp_path):
    splits = tmp_path / "splits.json"
    splits.write_text('{"test": ["a"]}')
    _, manifest, _, _ = _convert(source, output=tmp_path / "out", splits=[splits])
    assert [file["shard"] is None for file in manifest["files"]] == [False, True]
    assert ShardDataset(tmp_path / "out").ids == ("a",)


def test_an_episode_in_two_splits_is_left_out_and_counted(source, tmp_path):
    splits = tmp_path / "splits.json"
    splits.write_text('{"train": ["a", "b"], "test": ["a"]}')
    summary, manifest, _, printed = _convert(source, output=tmp_path / "out", splits=[splits])
    assert ShardDataset(tmp_path / "out").ids == ("b",)
    assert summary.episodes_in_two_splits == manifest["episodes_in_two_splits"] == 1
    assert "1 episode(s) left out because the split files put them into two" in printed


def test_the_same_conversion_gives_the_same_bytes(source, tmp_path):
    for name in ("one", "two"):
        _convert(source, output=tmp_path / name)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert len(files) == 4
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in files)


def test_a_file_named_twice_is_read_once(source, tmp_path):
    summary, *_ = _convert(source, source / "single/single-00000-of-00001", output=tmp_path / "out")
    assert summary.total("episodes_written") == 4


def test_an_episode_that_is_in_two_files_is_written_once(source, tmp_path):
    write_episodes(source / "general-00001-of-00002", [made_episode("a"), made_episode("e")])
    summary, _, lines, _ = _convert(source, output=tmp_path / "out")
    assert sorted(ShardDataset(tmp_path / "out").ids) == ["a", "b", "c", "d", "e"]
    assert summary.quarantined == STEPS and "read before" in lines[0]["reason"]


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
    ("damage", "reason", "kept"),
    [
        (_cut, "truncated", ["a"]),
        (_flip_in_payload, "the checksum of the record's payload is wrong", ["a"]),
        (_flip_in_framing, "the checksum of the record's length is wrong", []),
        (_flip_in_gzip, "", None),
        (lambda data: b"", "the file is empty", []),
        (lambda data: b"this is not it", "no TFRecord", []),
        (lambda data: data[:-4], "gzip stream is truncated", ["a", "b"]),
    ],
)
def test_damage_is_reported_with_file_and_record_and_costs_no_other_episode(source, tmp_path, damage, reason, kept):
    path = source / "general/general-00000-of-00001"
    path.write_bytes(damage(path.read_bytes()))
    summary, _, lines, printed = _convert(source, output=tmp_path / "out")
    ids = ShardDataset(tmp_path / "out").ids
    assert ids[-2:] == ("c", "d")
    assert kept is None or list(ids[:-2]) == kept
    assert summary.quarantined > 0
    assert any(reason in line["reason"] for line in lines)
    assert all(line["file"] == str(path) for line in lines)
    assert f"{path}: record {lines[0]['record']} (at byte {lines[0]['offset']}): {lines[0]['reason']}" in printed
    for id_, episode in zip(ids, ShardDataset(tmp_path / "out"), strict=True):
        assert_same_episode(episode, made_episode(id_, episode.subset))


def test_an_empty_output_folder_is_fine(source, tmp_path):
    (tmp_path / "out").mkdir()
    summary, *_ = _convert(source, output=tmp_path / "out")
    assert summary.total("episodes_written") == 4


@pytest.mark.parametrize(("left", "what"), [("manifest.json", "a complete conversion"), ("general", "was stopped")])
def test_an_output_that_is_not_empty_is_refused_and_left_alone(source, tmp_path, left, what):
    (tmp_path / "out" / left).mkdir(parents=True)
    with pytest.raises(DatasetError, match=f"already holds .*{what}"):
        convert("aitw", [source], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [left]


def test_a_stopped_conversion_has_no_manifest(source, tmp_path, monkeypatch):
    write = ShardWriter.write

    def stop_at_c(self, episode, split):
        if episode.id == "c":
            raise KeyboardInterrupt
        write(self, episode, split)

    monkeypatch.setattr(ShardWriter, "write", stop_at_c)
    with pytest.raises(KeyboardInterrupt):
        convert("aitw", [source], tmp_path / "out")
    with pytest.raises(DatasetError, match="did not finish"):
        ShardDataset(tmp_path / "out")


def test_bad_requests_are_refused_before_anything_is_written(source, tmp_path):
    output = tmp_path / "out"
    (tmp_path / "empty").mkdir()
    (source / "part-00000-of-00001").write_bytes(b"")
    other = tmp_path / "general-00000-of-00001"
    other.write_bytes(b"")
    (tmp_path / "splits.json").write_text("{")
    general = source / "general"
    for arguments, reason in [
        (("aitz", [general], output), "source 'aitz' is unknown; there are aitw"),
        (("aitw", [], output), "no input"),
        (("aitw", [tmp_path / "empty"], output), "empty holds no file of this source"),
        (("aitw", [tmp_path / "nowhere"], output), "nowhere does not exist"),
        (("aitw", [source], output), "cannot tell the subset of .*part-00000-of-00001"),
        (("aitw", [general, other], output), "would both become general/general-00000-of-00001.parquet"),
        (("aitw", [general], output, [tmp_path / "splits.json"]), "not JSON"),
        (("aitw", [general], other), "is a file; the shards need a folder"),
    ]:
        with pytest.raises(DatasetError, match=reason):
            convert(*arguments)
        assert not output.exists()
