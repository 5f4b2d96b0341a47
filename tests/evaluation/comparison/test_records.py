"""The records of a comparison: a line for each start and end of a stage."""

from pathlib import Path

from vlm_agent.evaluation.comparison.records import Records, read_progress
from vlm_agent.evaluation.comparison.stages import Stage


def test_the_first_record_makes_the_folder_and_a_cut_line_is_left_alone(tmp_path):
    records, one = Records(tmp_path / "of" / "one"), Stage("train-a-0", ("train",))
    records.add(one, command="vlm-agent train")
    with (records.output / "stages" / "train-a-0.jsonl").open("ab") as file:
        file.write(b'{"stat')
    records.add(one, status=3)
    assert (records.output / "stages" / "train-a-0.jsonl").read_text().splitlines() == [
        '{"command": "vlm-agent train"}',
        '{"stat',
        '{"status": 3}',
    ]
    failed = f"train-a-0 with status 3; see {records.output / 'logs' / 'train-a-0'}.log"
    assert read_progress(records.output) == ([], [failed], None)
    records.add(one, status=0)
    assert [path.stem for path in read_progress(records.output)[0]] == ["train-a-0"]


def test_stages_of_seeds_that_are_no_longer_asked_for_do_not_count(tmp_path):
    records = Records(tmp_path)
    for seed in (0, 1):
        one = Stage(f"train-a-{seed}", ("train", "--output", str(tmp_path)))
        records.add(one, status=0)
    records.note([one])
    assert [path.stem for path in read_progress(tmp_path)[0]] == ["train-a-1"]


def test_the_progress_is_the_same_from_every_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = Path("runs") / "one"
    records, one = Records(output), Stage("train-a-0", ("train", "--output", str(output / "runs" / "a_0")))
    (output / "runs" / "a_0").mkdir(parents=True)
    records.note([one])
    records.add(one, status=0)
    for folder, name in ((tmp_path, output), (tmp_path / "runs", Path("one")), (tmp_path, tmp_path / output)):
        monkeypatch.chdir(folder)
        assert [path.stem for path in read_progress(name)[0]] == ["train-a-0"]


def test_a_comparison_in_a_new_folder_records_its_stages_first(tmp_path):
    records = Records(tmp_path / "of" / "one")
    records.note([])
    assert read_progress(records.output) == ([], [], 0)
    records.note([])
