"""A thousand damaged records: each is counted, reported, and costs its own episode only."""

import gzip
import itertools
import random

from helpers.data.conversions import books_of
from helpers.data.damage import OF_FEATURES, OF_WIRE, damaged, flip, framed
from helpers.data.made_episodes import ACTIONS, assert_same_episode, made_episode

from vlm_agent.cli import FAILED, OK, QUARANTINED, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.sources.aitw import encode_step

KINDS = (*OF_FEATURES, *OF_WIRE, None)
TIMES = 43
"""The damage of each kind."""

FILES, EPISODES_A_FILE, STEPS = 40, 16, 4


def _episode(file: int, number: int):
    return made_episode(f"{file} {number}", actions=ACTIONS[number % 5 : number % 5 + STEPS], size=(12, 8))


def _write_damaged(path, file, damages, rng):
    """Half of the steps of most episodes are damaged, all of the rest are as they were. The offsets of the damaged
    records, and the ids of whole episodes."""
    stream, hurt, whole = b"", {}, []
    for number in range(EPISODES_A_FILE):
        episode = _episode(file, number)
        places = rng.sample(range(STEPS), 2) if number % 8 else []
        kinds = {place: kind for place in places if (kind := next(damages, "none left")) != "none left"}
        for step in range(STEPS):
            if step in kinds:
                hurt[file, number, step] = len(stream)
            stream += damaged(rng, episode, step, kinds[step]) if step in kinds else framed(encode_step(episode, step))
        if not kinds:
            whole.append(episode)
    path.write_bytes(gzip.compress(stream, 1) if file % 2 else stream)
    return hurt, whole


def test_a_thousand_damaged_records_are_counted_and_cost_nothing_but_their_episodes(tmp_path):
    rng = random.Random(11)
    kinds = [kind for kind in KINDS for _ in range(TIMES)]
    rng.shuffle(kinds)
    damages, hurt, whole = iter(kinds), {}, []
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        path = tmp_path / f"in/general-{file:05d}-of-{FILES:05d}"
        more_hurt, more_whole = _write_damaged(path, file, damages, rng)
        hurt, whole = hurt | more_hurt, whole + more_whole
    assert next(damages, "all used") == "all used" and len(hurt) == len(kinds) >= 1000

    arguments = ["convert", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--workers", "1"]
    assert main(arguments) == QUARANTINED
    manifest, lines = books_of(tmp_path / "out")
    assert manifest["steps_read"] == FILES * EPISODES_A_FILE * STEPS
    assert manifest["steps_written"] == len(whole) * STEPS
    assert [file["steps_read"] for file in manifest["files"]] == [EPISODES_A_FILE * STEPS] * FILES
    dataset = ShardDataset(tmp_path / "out")
    assert dataset.ids == tuple(episode.id for episode in whole)
    for got, episode in zip(dataset, whole, strict=True):
        assert_same_episode(got, episode)

    line_of = {(line["file"], line["record"]): line for line in lines}
    assert len(line_of) == len(lines)
    for (file, number, step), offset in hurt.items():
        line = line_of[str(tmp_path / f"in/general-{file:05d}-of-{FILES:05d}"), number * STEPS + step]
        assert line["offset"] == offset and line["reason"]


def _records(episodes):
    return [framed(encode_step(episode, step)) for episode in episodes for step in range(len(episode))]


def _convert_one(folder, content, name):
    """The manifest, the quarantine and the dataset of one file with the content."""
    path = folder / f"in {name}" / "general-00000-of-00001"
    path.parent.mkdir()
    path.write_bytes(content)
    arguments = ["convert", "--input", str(path), "--output", str(folder / f"out {name}"), "--workers", "1"]
    status = main(arguments)
    manifest, lines = books_of(folder / f"out {name}")
    assert status == (FAILED if not manifest["episodes_written"] else QUARANTINED if lines else OK)
    for line in lines:
        assert line["file"] == str(path) and line["reason"] and min(line["record"], line["offset"]) >= 0
    return manifest, lines, ShardDataset(folder / f"out {name}")


def _check_begin(dataset, episodes, count):
    assert dataset.ids == tuple(episode.id for episode in episodes[:count])
    for got, episode in zip(dataset, episodes, strict=False):
        assert_same_episode(got, episode)


def test_a_length_that_its_checksum_does_not_fit_ends_the_file_there(tmp_path):
    rng = random.Random(12)
    episodes = [_episode(0, number) for number in range(6)]
    records = _records(episodes)
    for at in range(len(records)):
        hurt = [*records[:at], flip(rng, records[at], 0, 12), *records[at + 1 :]]
        content = b"".join(hurt)
        manifest, lines, dataset = _convert_one(tmp_path, gzip.compress(content, 1) if at % 2 else content, at)
        assert manifest["steps_read"] == at + 1 and manifest["files_cut_short"] == 1
        assert lines[-1]["record"] == at and lines[-1]["offset"] == sum(map(len, records[:at]))
        _check_begin(dataset, episodes, at // STEPS)


def test_a_file_may_end_anywhere(tmp_path):
    rng = random.Random(13)
    episodes = [_episode(0, number) for number in range(4)]
    records = _records(episodes)
    ends = list(itertools.accumulate(map(len, records)))
    content = b"".join(records)
    lengths = [0, 1, 11, 12, 13, *ends, *(end - 1 for end in ends), *(rng.randrange(len(content)) for _ in range(20))]
    for name, length in enumerate(lengths):
        manifest, lines, dataset = _convert_one(tmp_path, content[:length], name)
        complete = sum(end <= length for end in ends)
        is_clean = length in ends
        assert manifest["steps_read"] == complete + (not is_clean)
        assert manifest["files_cut_short"] == (not is_clean)
        assert len(lines) == complete % STEPS + (not is_clean)
        _check_begin(dataset, episodes, complete // STEPS)


def test_a_gzip_file_may_end_or_be_damaged_anywhere(tmp_path):
    rng = random.Random(14)
    episodes = [_episode(0, number) for number in range(4)]
    records = _records(episodes)
    content = gzip.compress(b"".join(records), 1, mtime=0)
    damages = [content[:length] for length in (1, 2, 9, 10, 11, len(content) - 8, len(content) - 1)]
    damages += [content[: rng.randrange(len(content))] for _ in range(12)]
    damages += [flip(rng, content, 0, 18) for _ in range(20)] + [flip(rng, content, -8, 0) for _ in range(8)]
    damages += [flip(rng, content, 18, -8) for _ in range(25)]
    damages += [content + more for more in (b"\0" * 9, b"\x1f", b"\x1f\x8b", b"x", content, content[:20])]
    for name, damage in enumerate(damages):
        manifest, lines, dataset = _convert_one(tmp_path, damage, name)
        assert manifest["steps_read"] <= 2 * len(records) + 1
        originals = {episode.id: episode for episode in episodes}
        for got in dataset:
            assert_same_episode(got, originals.pop(got.id))
        assert not originals or lines, "an episode is missing without a message"


def test_flipped_bits_anywhere_in_a_payload_raise_nothing_and_are_counted(tmp_path):
    """Some of these records are sound and say something else; all of them are in the books, and none costs another
    episode than its own."""
    rng = random.Random(15)
    for name in range(12):
        stream, count = b"", 0
        for number in range(EPISODES_A_FILE):
            for step in range(STEPS):
                payload = encode_step(_episode(name, number), step)
                if number % 2:
                    for _ in range(rng.randint(1, 4)):
                        payload = flip(rng, payload, 0, 0)
                stream, count = stream + framed(payload), count + 1
        manifest, _, dataset = _convert_one(tmp_path, stream, name)
        assert manifest["steps_read"] == count
        got = {episode.id: episode for episode in dataset}
        for number in range(0, EPISODES_A_FILE, 2):
            assert_same_episode(got[f"{name} {number}"], _episode(name, number))
