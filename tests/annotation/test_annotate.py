"""`vlm-agent annotate`: four texts a step, no call twice, resumed to the same bytes, nothing lost when calls fail."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from helpers.agents.chat_server import Reply, serving
from helpers.data.feature_shards import write_several
from helpers.pages.annotation_requests import kind, parts, tree, written

from vlm_agent.annotation.annotator import STOPPED, clean_text, element_name
from vlm_agent.annotation.check import check_step
from vlm_agent.cli import FAILED, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.schema import notes_of
from vlm_agent.datasets.shards.writer import ShardWriter

EPISODES, STEPS = 4, 5
TAPS = {"tap", "long_press"}


def words(shards, url, output, *more):
    return ["annotate", str(shards), "--endpoint", url, "--model", "mine", "--output", str(output), *map(str, more)]


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """(folder, requests) of an uninterrupted annotation."""
    output = tmp_path_factory.mktemp("whole") / "out"
    with serving(lambda _, body: Reply(written(body))) as (url, requests):
        assert main(words(shards, url, output)) == 0
    return output, requests


def test_every_step_has_its_texts_and_nothing_else_changes(shards, whole):
    output, requests = whole
    before, after = ShardDataset(shards), ShardDataset(output)
    assert after.ids == before.ids
    assert after.splits == before.splits
    asked = Counter(kind(request.body) for request in requests)
    for index in range(len(before)):
        old, new = before.row(index), after.row(index)
        texts = [notes_of(step.pop("notes")) for step in new["steps"]]
        assert [step.pop("notes") for step in old["steps"]] == [[]] * STEPS
        assert new == old
        steps = after[index].steps
        for number, (step, coat) in enumerate(zip(steps, texts, strict=True)):
            assert coat["screen"].startswith("screen ")
            assert coat["think"].startswith("think ")
            if step.action.name in TAPS:
                assert coat["action"].startswith("click on action ")
            else:
                assert check_step(step) is None
            if step.action.is_status:
                assert coat["result"] == STOPPED
            else:
                assert coat["result"].startswith("result ") == (number + 1 < STEPS)
    assert asked["screen"] == asked["think"] == EPISODES * STEPS
    assert len(requests) == len({json.dumps(request.body, sort_keys=True) for request in requests})


def test_a_description_of_a_screen_is_blind_to_goal_and_action(shards, whole):
    _, requests = whole
    goals = {ShardDataset(shards).without_pixels(index).goal for index in range(EPISODES)}
    texts = {kind(request.body): parts(request.body) for request in requests}
    assert {name: len(pictures) for name, (_, pictures) in texts.items()} == {
        "screen": 1,
        "action": 1,
        "think": 1,
        "result": 2,
    }
    for request in requests:
        text, _ = parts(request.body)
        knows = any(goal in text for goal in goals)
        assert knows == (kind(request.body) == "think")
    described = {parts(request.body)[0] for request in requests if kind(request.body) == "screen"}
    assert len(described) == 1


def test_a_thought_knows_the_gold_action_and_a_result_sees_both_screens(shards, whole):
    output, requests = whole
    dataset = ShardDataset(output)
    thoughts = [parts(request.body)[0] for request in requests if kind(request.body) == "think"]
    results = [request.body for request in requests if kind(request.body) == "result"]
    for index in range(EPISODES):
        coats = [step.notes for step in dataset.without_pixels(index).steps]
        for number, coat in enumerate(coats):
            own = [
                text for text in thoughts if coat["screen"] in text and f"next action is: {coat['action']}\n" in text
            ]
            assert own
            assert all(earlier["action"] in own[0] for earlier in coats[:number])
    assert all(first != second for first, second in (parts(body)[1] for body in results))


def test_the_output_does_not_depend_on_the_number_of_calls_at_a_time(shards, whole, server, tmp_path):
    assert main(words(shards, server[0], tmp_path / "out", "--concurrency", 1)) == 0
    assert tree(tmp_path / "out") == tree(whole[0])


def test_the_same_command_again_calls_nobody_and_changes_nothing(shards, server, tmp_path, capsys):
    url, requests = server
    assert main(words(shards, url, tmp_path / "out")) == 0
    before, calls = tree(tmp_path / "out"), len(requests)
    assert main(words(shards, url, tmp_path / "out")) == 0
    assert tree(tmp_path / "out") == before
    assert len(requests) == calls
    (tmp_path / "out/manifest.json").unlink()
    next((tmp_path / "out").glob("general/*.parquet")).unlink()
    assert main(words(shards, "http://127.0.0.1:9/v1", tmp_path / "out")) == 0
    assert tree(tmp_path / "out") == before
    assert "0 calls" in capsys.readouterr().out


def test_other_settings_in_the_same_folder_are_refused(shards, whole, capsys):
    assert main([*words(shards, "http://127.0.0.1:9", whole[0], "--replace")]) == FAILED
    assert "replace was false, and is true" in capsys.readouterr().err


def test_steps_whose_calls_fail_are_listed_and_asked_again_alone(shards, whole, tmp_path, capsys):
    refused = []

    def answer(_, body):
        if broken and kind(body) == "screen" and (not refused or parts(body) in refused) and len(refused) < 2:
            refused.append(parts(body))
            return Reply(b"no", status=400)
        return Reply(written(body))

    broken = True
    with serving(answer) as (url, requests):
        assert main(words(shards, url, tmp_path / "out")) == FAILED
        error = capsys.readouterr().err
        assert "failed.jsonl" in error
        assert "status 400" in error
        assert "refuses the same request again" in error  # texts that wait for a refused one do not hide it
        listed = [json.loads(line) for line in (tmp_path / "out/failed.jsonl").read_text().splitlines()]
        assert {(one["text"], "waits" if "needs the text" in one["reason"] else "failed") for one in listed} == {
            ("screen", "failed"),
            ("think", "waits"),
        }
        assert not (tmp_path / "out/manifest.json").exists()
        answered, broken = len(requests), False
        assert main(words(shards, url, tmp_path / "out")) == 0
        assert len(requests) - answered == len(listed)
    assert tree(tmp_path / "out") == tree(whole[0])


def test_missing_texts_are_accepted_only_when_asked(shards, whole, tmp_path):
    def answer(_, body):
        return Reply(b"no", status=400) if broken and kind(body) == "screen" else Reply(written(body))

    output, broken = tmp_path / "out", True
    with serving(answer) as (url, _):
        assert main(words(shards, url, output)) == FAILED
        assert main(words(shards, url, output, "--accept-missing")) == 0
        manifest = json.loads((output / "manifest.json").read_text())
        assert manifest["texts"]["screen"] == {"missing": EPISODES * STEPS}
        assert manifest["texts"]["think"] == {"model": EPISODES * STEPS}
        assert {step.notes["screen"] for episode in ShardDataset(output) for step in episode.steps} == {""}
        broken = False
        assert main(words(shards, url, output)) == 0
    assert tree(output) == tree(whole[0])
    assert not (output / "failed.jsonl").exists()


def test_thoughts_alone_are_written_for_screens_without_a_description(shards, server, tmp_path):
    url, requests = server
    assert main(words(shards, url, tmp_path / "out", "--texts", "think")) == 0
    assert {kind(request.body) for request in requests} == {"think"}
    assert all(step.notes["think"] for episode in ShardDataset(tmp_path / "out") for step in episode.steps)


def test_a_reply_without_text_is_listed(shards, tmp_path, capsys):
    with serving(lambda _, body: Reply("  \n\x00")) as (url, _):
        assert main(words(shards, url, tmp_path / "out", "--limit", 1)) == FAILED
    assert "the reply has no text" in capsys.readouterr().err


@pytest.mark.parametrize("useless", ["", "  \n\x00", "..."])
def test_a_reply_of_no_use_is_asked_for_again_by_the_same_command_and_still_counts(shards, tmp_path, capsys, useless):
    def answer(_, body):
        text = useless if broken and kind(body) in ("screen", "action") else written(body)
        content = {"choices": [{"message": {"content": text}}], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
        return Reply(json.dumps(content).encode())

    output, broken = tmp_path / "out", True
    command = ("--texts", "screen" if useless != "..." else "action", "--limit", 1, "--price", 1_000_000, 0)
    with serving(answer) as (url, requests):
        assert main(words(shards, url, output, *command)) == FAILED
        first, broken = len(requests), False
        capsys.readouterr()
        assert main(words(shards, url, output, *command)) == 0
    again = len(requests) - first
    assert 0 < again <= first
    out = capsys.readouterr().out
    assert f"{again} earlier replies lost or of no use" in out
    assert f"cost with earlier commands {7 * (first + again)}.00" in out


def test_the_estimate_of_few_episodes_is_computed_from_all_of_them(shards, tmp_path, capsys):
    with serving(lambda _, body: Reply(written(body))) as (url, requests):
        assert main(words(shards, url, tmp_path / "out", "--limit", 3)) == 0
    assert f"estimated: {len(requests)} calls" in capsys.readouterr().out


def test_a_rate_that_is_too_high_is_an_error_that_names_it(shards, tmp_path, capsys):
    assert main(words(shards, "http://localhost:1", tmp_path / "out", "--requests-per-minute", 1e9)) == FAILED
    assert "requests_per_minute: Input should be less than or equal to 100000" in capsys.readouterr().err


def test_shards_without_texts_have_nothing_to_check(shards, capsys):
    assert main(["annotate", "--check", str(shards)]) == FAILED
    assert "has no texts to check" in capsys.readouterr().err


def test_a_server_with_faults_is_asked_until_it_answers(shards, whole, tmp_path):
    """Busy, failing, cut, without JSON: every text is written in the end, as by a server without faults."""
    faults = (
        Reply(b"busy", status=429, headers={"Retry-After": "0"}),
        Reply(b"down", status=500, headers={"Retry-After": "0"}),
        Reply(b"down", status=503, headers={"Retry-After": "0"}),
    )
    slow_faults = {7: Reply(b"<html>"), 23: Reply(cut=True)}  # repeated after a second

    def answer(number, body):
        return slow_faults.get(number, faults[number % 3] if number % 4 == 0 else Reply(written(body)))

    with serving(answer) as (url, requests):
        assert main(words(shards, url, tmp_path / "out")) == 0
    assert tree(tmp_path / "out") == tree(whole[0])
    answered = Counter(
        json.dumps(one.body, sort_keys=True) for n, one in enumerate(requests) if n % 4 and n not in slow_faults
    )
    assert set(answered.values()) == {1}
    assert len(answered) == len(whole[1])


def test_texts_that_steps_have_are_kept_unless_replaced(whole, tmp_path):
    def answer(_, body):
        return Reply(f"new {written(body)}")

    old = ShardDataset(whole[0])
    with serving(answer) as (url, requests):
        assert main(words(whole[0], url, tmp_path / "kept")) == 0
        assert requests == []
        assert main(words(whole[0], url, tmp_path / "new", "--replace", "--texts", "screen")) == 0
        assert {kind(request.body) for request in requests} == {"screen"}
    kept, new = ShardDataset(tmp_path / "kept"), ShardDataset(tmp_path / "new")
    for index in range(EPISODES):
        assert kept.row(index) == old.row(index)
        for step, other in zip(new[index].steps, old[index].steps, strict=True):
            assert step.notes["screen"].startswith("new screen")
            assert (step.notes["think"], step.notes["action"], step.notes["result"]) == (
                other.notes["think"],
                other.notes["action"],
                other.notes["result"],
            )


def test_an_endpoint_that_cannot_be_used_ends_the_command_at_once(shards, tmp_path, capsys):
    assert main(words(shards, "http://127.0.0.1:9/v1", tmp_path / "out")) == FAILED
    assert "cannot be reached" in capsys.readouterr().err
    with serving(lambda _, body: Reply(b"who?", status=401)) as (url, requests):
        assert main(words(shards, url, tmp_path / "out", "--concurrency", 1)) == FAILED
        assert "OPENAI_API_KEY" in capsys.readouterr().err
        assert len(requests) <= 2
    assert not (tmp_path / "out/manifest.json").exists()


def test_a_damaged_screen_is_named(server, tmp_path, capsys):
    damaged = write_several(tmp_path / "shards", subsets=("general",))
    dataset = ShardDataset(damaged)
    rows = [dataset.row(index) for index in range(len(dataset))]
    rows[1]["steps"][3]["screenshot"]["bytes"] = b"no picture"
    with ShardWriter(damaged / dataset.place(0)[0]) as writer:
        for row in rows:
            writer.write_row(row)
    assert main(words(damaged, server[0], tmp_path / "out")) == FAILED
    error = capsys.readouterr().err
    assert f"{damaged}: episode {dataset.ids[1]}, step 3: the screen cannot be decoded" in error


def test_a_limit_of_cost_stops_with_every_reply_on_disk(shards, whole, tmp_path, capsys):
    def answer(_, body):
        usage = {"prompt_tokens": 1000, "completion_tokens": 100}
        content = {"choices": [{"message": {"role": "assistant", "content": written(body)}}], "usage": usage}
        return Reply(json.dumps(content).encode())

    price = ("--price", 1, 10, "--max-tokens", 512, "--concurrency", 1)
    with serving(answer) as (url, requests):
        assert main(words(shards, url, tmp_path / "out", *price, "--max-cost", 0.03)) == FAILED
        out, error = capsys.readouterr()
        assert "estimated" in out
        assert "--max-cost" in error
        assert 0 < len(requests) <= 15
        assert main(words(shards, url, tmp_path / "out", *price)) == 0
        assert len(requests) == len(whole[1])
    assert tree(tmp_path / "out") == tree(whole[0])


def test_killed_at_any_time_it_resumes_to_the_same_bytes_without_a_call_twice(shards, whole, tmp_path):
    def answer(_, body):
        return Reply(written(body), wait=0.01)

    output = tmp_path / "out"
    with serving(answer) as (url, requests):
        command = [sys.executable, "-m", "vlm_agent.cli", *words(shards, url, output, "--concurrency", 2)]
        for wanted in (5, 40):
            process = subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while len(requests) < wanted and process.poll() is None:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            process.wait()
        killed = len(requests)
        assert main(words(shards, url, output, "--concurrency", 2)) == 0
    assert killed < len(whole[1])
    assert tree(output) == tree(whole[0])
    # Only a request under way at one of the two kills is sent again: at most one of each of the two threads.
    assert len(requests) <= len(whole[1]) + 2 * 2


def test_a_folder_is_free_for_another_model_where_the_first_one_does_not_exist(shards, tmp_path, capsys):
    def answer(_, body):
        return Reply(b"no such model", status=404) if body["model"] == "typo" else Reply(written(body))

    with serving(answer) as (url, _):
        command = words(shards, url, tmp_path / "out", "--limit", 1, "--texts", "action")
        assert main([*command, "--model", "typo"]) == FAILED
        assert "has no model 'typo'" in capsys.readouterr().err
        assert main(command) == 0


def test_tasks_of_a_job_array_and_finish_write_the_same_bytes(shards, whole, server, tmp_path, capsys):
    output = tmp_path / "out"
    for index in (1, 0):
        assert main(["annotate", "--finish", "--output", str(output)]) == FAILED
        assert main(words(shards, server[0], output, "--shard-index", index, "--shard-count", 2)) == 0
        assert not (output / "manifest.json").exists()
    assert main(["annotate", "--finish", "--output", str(output)]) == 0
    assert tree(output) == tree(whole[0])
    assert "1 of 2 shards are not annotated yet" in capsys.readouterr().err


def test_a_part_of_the_episodes_can_be_annotated(shards, server, tmp_path):
    url, requests = server
    assert main(words(shards, url, tmp_path / "out", "--split", "test", "--limit", 1)) == 0
    assert ShardDataset(tmp_path / "out").splits == ("test",)
    assert sum(kind(request.body) == "screen" for request in requests) == STEPS


def test_findings_are_part_of_the_output_and_of_the_summary(whole, capsys):
    assert main(["annotate", "--check", str(whole[0])]) == 0
    alone = capsys.readouterr().out
    findings = [json.loads(line) for line in (whole[0] / "findings.jsonl").read_text().splitlines()]
    assert findings
    assert all(f"episode {one['episode_id']}, step {one['step']}: {one['problem']}" in alone for one in findings)
    assert main(["annotate", "--finish", "--output", str(whole[0])]) == 0
    assert f"{len(findings)} action description(s) need a look" in capsys.readouterr().out


def test_own_prompts_are_used_and_wrong_ones_refused(shards, server, tmp_path, capsys):
    url, requests = server
    folder = tmp_path / "prompts"
    folder.mkdir()
    output = tmp_path / "out"
    own = {
        "screen": "Describe it, $$5",
        "touched": "Name the element",
        "think": "what the agent thinks: $goal|$earlier|$screen|$action",
        "result": "two pictures $goal",
    }
    for name, text in own.items():
        (folder / f"{name}.txt").write_text(text)
    assert main(words(shards, url, output, "--prompts", folder)) == FAILED
    assert "result.txt: the placeholder $goal is unknown" in capsys.readouterr().err
    (folder / "result.txt").write_text("two pictures")
    assert main(words(shards, url, output, "--prompts", folder, "--limit", 1)) == 0
    assert "Describe it, $5" in {parts(request.body)[0] for request in requests}
    (folder / "think.txt").unlink()
    assert main(words(shards, url, output, "--prompts", folder, "--limit", 1)) == FAILED
    assert "think.txt is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("  Two\n lines \x00\x1b[31m\u202e ", "Two lines [31m"),
        ("lone \ud800 surrogate", "lone surrogate"),
        ("x" * 100_000, "x" * 8000),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
)
def test_any_reply_becomes_one_printable_paragraph(reply, text):
    assert clean_text(reply) == text
    text.encode()


@pytest.mark.parametrize(
    ("reply", "name"),
    [
        ("the Clock app", "the Clock app"),
        ('"Clock".', "Clock"),
        ('the "Save" button at the top right.', 'the "Save" button at the top right'),
        ('"Save" beside "Cancel"', '"Save" beside "Cancel"'),
        ("Click on **Clock**", "Clock"),
        ("...", ""),
    ],
)
def test_the_name_of_an_element_is_read_from_a_reply(reply, name):
    assert element_name(reply) == name


@pytest.mark.parametrize(
    ("reply", "name"), [("Touch ID", "Touch ID"), ("touch id.", "touch id"), ("Touch Face ID", "Face ID")]
)
def test_a_text_on_the_screen_is_a_name_as_it_is(reply, name):
    assert element_name(reply, ["Settings", "Touch  ID"]) == name


def test_wrong_combinations_of_options_are_refused(shards, tmp_path):
    for arguments in (
        ["annotate", str(shards)],
        ["annotate", str(shards), "--finish"],
        ["annotate", "--check"],
        ["annotate", "--review"],
        ["annotate", "--check", "--review", "--output", "x"],
        [*words(shards, "http://127.0.0.1:9", tmp_path), "--shard-index", "0"],
        [*words(shards, "http://127.0.0.1:9", tmp_path), "--max-cost", "1"],
        [*words(shards, "http://127.0.0.1:9", tmp_path), "--price", "1", "-1"],
        [*words(shards, "http://127.0.0.1:9", tmp_path), "--price", "1", "nan"],
        [*words(shards, "http://127.0.0.1:9", tmp_path), "--requests-per-minute", "0"],
        [*words(shards, "http://127.0.0.1:9", tmp_path), "--port", "80"],
    ):
        with pytest.raises(SystemExit):
            main(arguments)
