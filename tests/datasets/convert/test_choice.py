"""Which episodes are converted: splits, mixtures, and the rule for episodes that are not whole."""

import json

import pytest
from helpers.data.conversions import STEPS, converted, tree, write_files
from helpers.data.made_episodes import ACTIONS, assert_same_episode, made_episode

from vlm_agent.cli import main
from vlm_agent.datasets.formats.tfrecord import write_records
from vlm_agent.datasets.selection import in_mixture
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.sources.aitw import encode_step, write_episodes
from vlm_agent.errors import DatasetError


def _splits_of(output):
    dataset = ShardDataset(output)
    return dict(zip(dataset.ids, dataset.splits, strict=True))


def test_the_split_file_labels_episodes_and_leaves_the_others_out(source, tmp_path):
    summary, manifest, _, printed = converted(source, output=tmp_path / "out", splits=[source / "splits.json"])
    assert _splits_of(tmp_path / "out") == {"a": "train", "b": "validation", "c": "train"}
    assert summary.total("steps_left_out") == STEPS
    assert manifest["episodes_left_out"] == {"in_no_split": 1}
    assert manifest["options"]["splits"][0]["name"] == "splits.json"
    assert "1 episode(s) excluded: no split file contains them" in printed


@pytest.mark.parametrize(
    "name", ["standard", "unseen_android_version", "unseen_domain", "unseen_subject", "unseen_verb"]
)
def test_the_official_split_files_are_read(source, tmp_path, name):
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps({"train": ["a"], "validation": ["b", "c"], "test": ["d", "not converted"]}))
    converted(source, output=tmp_path / "out", splits=[file])
    assert _splits_of(tmp_path / "out") == {"a": "train", "b": "validation", "c": "validation", "d": "test"}


def test_auto_uis_files_one_a_subset_are_read_together(shared, tmp_path):
    """With the real lists: an id of each label, the two subsets in two files."""
    chosen = {}
    for subset in ("general", "single"):
        lists = json.loads((shared / f"data/aitw_splits/{subset}.json").read_text())
        ids = {label: next(id_ for id_ in lists[label] if sum(id_ in other for other in lists.values()) == 1)
               for label in lists}  # fmt: skip
        write_episodes(tmp_path / f"{subset}-00000-of-00001", [made_episode(id_, subset) for id_ in ids.values()])
        chosen |= {id_: {"val": "validation"}.get(label, label) for label, id_ in ids.items()}
    files = [shared / f"data/aitw_splits/{subset}.json" for subset in ("general", "single")]
    converted(*tmp_path.glob("*-of-*"), output=tmp_path / "out", splits=files)
    assert _splits_of(tmp_path / "out") == chosen
    assert set(chosen.values()) == {"train", "validation", "test"}


def test_a_file_without_kept_episodes_has_no_shard(source, tmp_path):
    splits = tmp_path / "splits.json"
    splits.write_text('{"test": ["a"]}')
    _, manifest, *_ = converted(source, output=tmp_path / "out", splits=[splits])
    assert [file["shard"] is None for file in manifest["files"]] == [False, True]
    assert ShardDataset(tmp_path / "out").ids == ("a",)


def test_an_episode_in_two_splits_is_left_out_and_counted(source, tmp_path):
    splits = tmp_path / "splits.json"
    splits.write_text('{"train": ["a", "b"], "test": ["a"]}')
    _, manifest, _, printed = converted(source, output=tmp_path / "out", splits=[splits])
    assert ShardDataset(tmp_path / "out").ids == ("b",)
    assert manifest["episodes_left_out"] == {"in_no_split": 2, "in_two_splits": 1}
    assert manifest["steps_left_out"] == 3 * STEPS
    assert "1 episode(s) excluded: the split files assign them to two splits" in printed


def _write_google_apps(folder, count=40):
    ids = [f"episode {number}" for number in range(count)]
    episodes = [made_episode(id_, "google_apps", ACTIONS[:1]) for id_ in ids]
    write_episodes(folder / "google_apps-00000-of-00001", episodes)
    return ids


def test_a_mixture_keeps_a_share_by_the_ids_alone_records_and_counts_it(source, tmp_path):
    ids = _write_google_apps(source)
    wanted = [id_ for id_ in ids if in_mixture(id_, "google_apps", {"google_apps": 0.3})]
    assert 0 < len(wanted) < len(ids)
    _, manifest, _, printed = converted(source, output=tmp_path / "out", mixture={"google_apps": 0.3})
    assert ShardDataset(tmp_path / "out", subset="google_apps").ids == tuple(wanted)
    assert len(ShardDataset(tmp_path / "out")) == len(wanted) + 4
    left_out = len(ids) - len(wanted)
    assert manifest["options"]["mixture"] == {"google_apps": 0.3}
    assert manifest["options"]["mixture_of"] == "train"
    assert manifest["steps_left_out"] == left_out
    assert manifest["episodes_left_out"] == {"outside_mixture": left_out}
    assert f"{left_out} episode(s) excluded from train by the mixture" in printed


def test_a_subset_that_is_twice_in_a_mixture_is_refused(source, tmp_path, capsys):
    words = ["convert", "--input", str(source), "--output", str(tmp_path / "out"), "--mixture"]
    with pytest.raises(SystemExit):
        main([*words, "general=0.1", "single=0.5", "general=1"])
    assert "--mixture names a subset twice: general single general" in capsys.readouterr().err


@pytest.mark.parametrize("share", [0, 0.3])
def test_a_mixture_reduces_train_and_never_validation_or_test(source, tmp_path, share):
    ids = _write_google_apps(source)
    train, held_out = ids[:20], {"validation": ids[20:30], "test": ids[30:]}
    splits = tmp_path / "splits.json"
    splits.write_text(json.dumps({"train": train} | held_out))
    converted(source, output=tmp_path / "out", mixture={"google_apps": share}, splits=[splits])
    kept = {split: list(ShardDataset(tmp_path / "out", split=split).ids) for split in ("train", *held_out)}
    assert (
        kept == {"train": [id_ for id_ in train if in_mixture(id_, "google_apps", {"google_apps": share})]} | held_out
    )


def test_a_mixture_of_an_earlier_version_which_reduced_every_split_is_not_resumed(source, tmp_path):
    converted(source, output=tmp_path / "out", mixture={"google_apps": 0.3})
    plan = tmp_path / "out/.conversion/plan.json"
    content = json.loads(plan.read_text())
    del content["checksum"], content["described"]["options"]["mixture_of"]
    plan.write_text(json.dumps(content))
    with pytest.raises(DatasetError, match=r'option mixture_of: null before, "train" now'):
        converted(source, output=tmp_path / "out", mixture={"google_apps": 0.3})


def test_a_smaller_share_is_part_of_a_larger_one(source, tmp_path):
    _write_google_apps(source)
    kept = {}
    for share in (0, 0.1, 0.5, 1):
        converted(source, output=tmp_path / str(share), mixture={"google_apps": share})
        kept[share] = ShardDataset(tmp_path / str(share), subset="google_apps").ids
    assert kept[0] == () and len(kept[1]) == 40
    assert set(kept[0.1]) < set(kept[0.5]) < set(kept[1])
    of_half = [id_ for id_ in kept[0.5] if in_mixture(id_, "google_apps", {"google_apps": 0.1})]
    assert tuple(of_half) == kept[0.1]


def _records(*places):
    """Records of the steps named: ("a", 0) is the first one of episode a."""
    return [encode_step(made_episode(id_), number) for id_, number in places]


def _steps(id_, *numbers):
    return [(id_, number) for number in (numbers or range(STEPS))]


WHOLE = [step for id_ in "xyz" for step in _steps(id_)]
A_GAP = _steps("a", 0, 1, 3, 4, 5, 6, 7)
REPEATED = _steps("b", 0, 1, 1, 2, 3, 4, 5, 6, 7)
INTERLEAVED = [pair[at] for pair in zip(_steps("c"), _steps("d"), strict=True) for at in (0, 1)]
OUT_OF_ORDER = _steps("e", 1, 0, 2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize(
    ("places", "faults", "kept", "bad"),
    [
        (A_GAP, {"gap": 1}, "", 7),
        (REPEATED, {"repeated_step": 1}, "b", 1),
        (INTERLEAVED, {"interleaved": 2}, "cd", 0),
        (OUT_OF_ORDER, {"out_of_order": 1}, "e", 0),
        (_steps("f") + _steps("g") + _steps("f"), {"id_seen_before": 1}, "fg", 8),
        (A_GAP + REPEATED + INTERLEAVED + OUT_OF_ORDER,
         {"gap": 1, "interleaved": 2, "out_of_order": 1, "repeated_step": 1}, "bcde", 8),
    ],
)  # fmt: skip
def test_episodes_that_are_not_as_they_should_be_are_counted_by_fault(tmp_path, places, faults, kept, bad):
    path = tmp_path / "general-00000-of-00001"
    write_records(path, _records(*WHOLE, *places))
    _, manifest, lines, _ = converted(path, output=tmp_path / "out")
    assert manifest["episode_faults"] == manifest["files"][0]["episode_faults"] == faults
    assert len(lines) == bad and manifest["steps_read"] == len(WHOLE) + len(places)
    dataset = ShardDataset(tmp_path / "out")
    assert sorted(dataset.ids) == sorted("xyz" + kept)
    for episode in dataset:
        assert_same_episode(episode, made_episode(episode.id))


def test_a_wrong_episode_length_and_a_conflicting_step_are_counted(tmp_path):
    short, long = made_episode("a", actions=ACTIONS[:4]), made_episode("a")
    other = made_episode("b", size=(20, 20))
    path = tmp_path / "general-00000-of-00001"
    records = [encode_step(long, number) for number in range(8)]
    records[5] = encode_step(short, 3)
    records += [encode_step(made_episode("b"), number) for number in range(8)]
    records.insert(12, encode_step(other, 2))
    write_records(path, records)
    _, manifest, lines, _ = converted(path, output=tmp_path / "out")
    assert manifest["episode_faults"] == {"conflicting_step": 1, "wrong_episode_length": 1}
    assert manifest["steps_quarantined"] == len(lines) == 17


def test_an_episode_that_is_in_two_files_is_kept_from_the_first(tmp_path):
    write_files(tmp_path / "in", "ab cdae bf")
    _, manifest, lines, printed = converted(tmp_path / "in", output=tmp_path / "out")
    assert ShardDataset(tmp_path / "out").ids == tuple("abcdef")
    assert manifest["files"][1]["steps_quarantined"] == manifest["files"][2]["steps_quarantined"] == STEPS
    assert manifest["episode_faults"] == {"id_seen_before": 2}
    assert {line["reason"] for line in lines} == {f"an episode with id {id_} was read before" for id_ in "ab"}
    assert "converting the later files again without them" in printed


def test_a_file_with_only_duplicate_episodes_has_no_shard(tmp_path):
    write_files(tmp_path / "in", "ab ba c")
    _, manifest, *_ = converted(tmp_path / "in", output=tmp_path / "out")
    assert [file["shard"] is None for file in manifest["files"]] == [False, True, False]
    assert ShardDataset(tmp_path / "out").ids == ("a", "b", "c")
    assert not (tmp_path / "out/general/general-00001-of-00003.parquet").exists()


def test_the_order_of_files_does_not_depend_on_the_number_of_workers(tmp_path):
    write_files(tmp_path / "in", "a abcdefgh bcz zq")
    for workers in (1, 2):
        converted(tmp_path / "in", output=tmp_path / str(workers), workers=workers)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")
    assert ShardDataset(tmp_path / "1").ids == tuple("abcdefghzq")
