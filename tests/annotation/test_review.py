"""The review over HTTP: what it refuses, what it stores, and that the final shards have the edits."""

import http.client
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from helpers.agents.chat_server import Reply, serving
from helpers.pages.annotation_requests import written
from helpers.pages.reviewing import reviewing
from helpers.pages.served_pages import exchange
from PIL import Image

from vlm_agent.annotation.annotator import TEXTS
from vlm_agent.annotation.edits import Edit, EditStore
from vlm_agent.annotation.review.session import ReviewSession
from vlm_agent.cli import FAILED, USAGE, main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.datasets.shards.schema import note_structs, notes_of
from vlm_agent.errors import DatasetError

EVIL = "</textarea><script>alert(1)</script><img src=x onerror=alert(2)>"
STEPS = 5


@pytest.fixture(scope="module")
def original(shards, tmp_path_factory):
    output = tmp_path_factory.mktemp("original") / "out"
    with serving(lambda _, body: Reply(f"{EVIL} {written(body)}")) as (url, _):
        assert main(["annotate", str(shards), "--endpoint", url, "--model", EVIL, "--output", str(output)]) == 0
    return output


@pytest.fixture
def annotated(original, tmp_path):
    """A complete annotation whose texts are hostile."""
    return shutil.copytree(original, tmp_path / "out")


@pytest.fixture
def server(annotated):
    with reviewing(annotated) as server:
        yield server


def ask(server, method, path, body=None, **headers):
    """(status, headers, body); `headers` with underscores, and None for the defaults to leave out."""
    defaults = {
        "Host": server.hosts[0],
        "Cookie": f"{server.cookie}={server.token}",
        "Origin": f"http://{server.hosts[0]}",
        "X-Page-Token": server.token if method == "POST" else None,
        "Content-Type": "application/json" if method == "POST" else None,
    }
    chosen = defaults | {name.replace("_", "-"): value for name, value in headers.items()}
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    if method == "POST":
        chosen = {"Content-Length": str(len(content))} | chosen
    return exchange(server, method, path, chosen, content)


def edit(output, index=0, number=0, **texts):
    coat = ShardDataset(output).without_pixels(index).steps[number].notes
    return {"texts": {name: coat[name] for name in TEXTS} | texts, "accepted": True}


def edits_in(output):
    return list((output / ".annotation/edits").glob("*")) if (output / ".annotation/edits").exists() else []


def test_the_printed_address_opens_the_review_and_hides_the_token(server):
    status, headers, _ = ask(server, "GET", server.address.removeprefix(f"http://{server.hosts[0]}"), Cookie=None)
    assert (status, headers["Location"]) == (303, "/")
    assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]
    status, headers, page = ask(server, "GET", "/", Cookie=headers["Set-Cookie"].partition(";")[0])
    assert status == 200
    assert server.token.encode() not in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/", "/step/0/0", "/screen/0/0", "/after/0/1", "/review.js", "/review.css"])
def test_nothing_is_shown_without_the_token(server, path):
    for cookie in (None, f"{server.cookie}=", f"{server.cookie}=x{server.token}", f"review={server.token}", "\x01;;="):
        status, _, body = ask(server, "GET", path, Cookie=cookie)
        assert status == 403
        assert b"vlm-agent annotate --review" in body
    assert ask(server, "GET", "/?token=wrong", Cookie=None)[0] == 403
    assert ask(server, "GET", path)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Page_Token": None},
        {"X_Page_Token": "wrong"},
        {"Origin": "http://example.org"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Host": "example.org"},
        {"Host": None},
    ],
)
def test_nothing_is_written_without_the_token_or_from_another_origin(annotated, server, headers):
    for path in ("/step/0/0", "/step/99/0", "/elsewhere"):
        assert ask(server, "POST", path, edit(annotated, screen="new"), **headers)[0] == 403
    assert edits_in(annotated) == []


@pytest.mark.parametrize("headers", [{"Origin": "http://example.org"}, {"Host": "example.org:80"}])
def test_other_origins_cannot_read(server, headers):
    assert ask(server, "GET", "/step/0/0", **headers)[0] == 403


@pytest.mark.parametrize(
    "path",
    ["/step/4/0", "/step/0/5", "/step/0/-1", "/step/0/00000000000", "/step/0", "/step/0/0/", "/../manifest.json"],
)
def test_unknown_steps_and_pages_do_not_exist(annotated, server, path):
    assert ask(server, "GET", path)[0] == 404
    assert ask(server, "POST", path, edit(annotated, screen="new"))[0] == 404
    assert ask(server, "GET", path.replace("step", "screen"))[0] == 404
    assert ask(server, "GET", "/?page=2")[0] == 404
    assert ask(server, "GET", "/?page=x")[0] == 404
    assert edits_in(annotated) == []


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"no JSON", {}, 400),
        (b"[" * 100_000, {}, 400),
        ([], {}, 400),
        ({"texts": dict.fromkeys(TEXTS, 1), "accepted": True}, {}, 400),
        ({"texts": dict.fromkeys(TEXTS, ""), "accepted": 1}, {}, 400),
        ({"texts": dict.fromkeys((*TEXTS, "goal"), ""), "accepted": True}, {}, 400),
        ({"texts": dict.fromkeys(TEXTS, "x" * 8001), "accepted": True}, {}, 400),
        ({"texts": dict.fromkeys(TEXTS, ""), "accepted": True}, {"Content_Type": "text/plain"}, 415),
        (b"", {"Content_Length": str(1 << 21)}, 413),
        (b"", {"Content_Length": "-1"}, 413),
        (b"", {"Content_Length": None}, 413),
    ],
)
def test_what_is_no_edit_is_refused(annotated, server, body, headers, status):
    assert ask(server, "POST", "/step/0/0", body, **headers)[0] == status
    assert edits_in(annotated) == []


def test_every_page_escapes_texts_goals_and_names(server):
    for path in ("/", "/step/0/0"):
        page = ask(server, "GET", path)[2].decode()
        assert "<script>alert" not in page
        assert "<img src=x" not in page
    assert page.count("&lt;/textarea&gt;&lt;script&gt;alert(1)") == 4
    assert EVIL.encode() not in ask(server, "GET", "/")[2]


def test_the_screens_show_the_action_and_what_followed(annotated, server):
    def pixels(path):
        status, headers, body = ask(server, "GET", path)
        assert (status, headers["Content-Type"]) == (200, "image/png")
        return Image.open(io.BytesIO(body)).convert("RGB")

    dataset = ShardDataset(annotated)
    index, number = next(
        (index, number)
        for index in range(4)
        for number, step in enumerate(dataset.without_pixels(index).steps)
        if step.action.is_tap
    )
    drawn, plain = pixels(f"/screen/{index}/{number}"), pixels(f"/after/{index}/{number}")
    assert drawn.size == plain.size
    assert drawn.tobytes() != plain.tobytes()
    assert (0, 138, 72) in {colour for _, colour in drawn.getcolors(1 << 24)}


def test_edits_are_stored_and_in_the_final_shards(annotated, server):
    before = ShardDataset(annotated)
    rows = [before.row(index) for index in range(4)]
    texts = {"think": 'Now "this" <b>\n  é\u202e', "action": "click on nothing at all"}
    status, _, body = ask(server, "POST", "/step/1/2", edit(annotated, 1, 2, **texts))
    reply = json.loads(body)
    assert status == 200
    assert reply["texts"]["think"] == 'Now "this" <b> é'
    assert reply["states"] == {"screen": "", "action": "edited", "think": "edited", "result": ""}
    assert reply["accepted"]
    assert "click on nothing at all" in ask(server, "GET", "/step/1/2")[2].decode()
    assert ShardDataset(annotated).row(1) == rows[1]  # until the review ends

    assert main(["annotate", "--finish", "--output", str(annotated)]) == 0
    after = ShardDataset(annotated)
    edited = {"think": 'Now "this" <b> é', "action": "click on nothing at all"}
    rows[1]["steps"][2]["notes"] = note_structs(notes_of(rows[1]["steps"][2]["notes"]) | edited)
    assert [after.row(index) for index in range(4)] == rows
    manifest = json.loads((annotated / "manifest.json").read_text())
    assert (manifest["steps_edited"], manifest["steps_accepted"]) == (1, 1)


def test_edits_survive_a_kill_and_a_repeated_annotation(shards, annotated, server):
    ask(server, "POST", "/step/0/1", edit(annotated, 0, 1, screen="mine"))
    name = ShardDataset(annotated).ids[0]
    with reviewing(annotated) as another:  # as after a kill: the shards do not have the edit yet
        assert ">\nmine</textarea>" in ask(another, "GET", "/step/0/1")[2].decode()
        ask(another, "POST", "/step/0/1", edit(annotated, 0, 1, screen="mine", result="ours"))
    assert EditStore(annotated / ".annotation").load(name) == {1: Edit({"screen": "mine", "result": "ours"}, True)}
    words = ["annotate", str(shards), "--endpoint", "http://127.0.0.1:9", "--model", EVIL, "--output", str(annotated)]
    assert main(words) == 0
    coat = ShardDataset(annotated).without_pixels(0).steps[1].notes
    assert (coat["screen"], coat["result"]) == ("mine", "ours")
    next(annotated.glob("general/*.parquet")).unlink()
    assert main(words) == 0
    assert ShardDataset(annotated).without_pixels(0).steps[1].notes == coat


def test_texts_that_another_tab_saved_meanwhile_stay(annotated, server):
    ask(server, "POST", "/step/0/1", {"texts": {"action": "of one tab"}, "accepted": True})
    assert ask(server, "POST", "/step/0/1", {"texts": {"think": "of another"}, "accepted": True})[0] == 200
    name = ShardDataset(annotated).ids[0]
    kept = {"action": "of one tab", "think": "of another"}
    assert EditStore(annotated / ".annotation").load(name) == {1: Edit(kept, True)}


def test_accepting_a_step_keeps_its_texts_to_the_byte(annotated, server):
    for accepted in (True, False):
        status, _, body = ask(server, "POST", "/step/0/0", edit(annotated) | {"accepted": accepted})
        assert status == 200
        assert set(json.loads(body)["states"].values()) == {""}
        assert json.loads(body)["accepted"] == accepted
    name = ShardDataset(annotated).ids[0]
    assert EditStore(annotated / ".annotation").load(name) == {0: Edit()}


def test_the_check_is_repeated_with_every_edit(annotated, server):
    dataset = ShardDataset(annotated)
    number = next(n for n, step in enumerate(dataset.without_pixels(0).steps) if step.action.is_swipe)
    direction = dataset.without_pixels(0).steps[number].action.direction
    replies = [
        json.loads(ask(server, "POST", f"/step/0/{number}", edit(annotated, 0, number, action=text))[2])
        for text in ("tap it", f"scroll {direction}")
    ]
    assert [reply["problem"] for reply in replies] == ["other action", None]


def test_the_next_open_and_the_next_listed_step_are_found_from_everywhere(annotated):
    session = ReviewSession(annotated)
    findings = [json.loads(line) for line in (annotated / "findings.jsonl").read_text().splitlines()]
    places = [(session._dataset.ids.index(one["episode_id"]), one["step"]) for one in findings]
    assert len(places) == 4
    assert [session.step(*place).next_finding for place in places] == [*places[1:], places[0]]
    assert session.step(3, 4).next is None
    assert session.step(0, 4).next == (1, 0)
    assert session.step(1, 0).previous == (0, 4)
    every = [(episode, number) for episode in range(4) for number in range(STEPS)]
    for place in every:
        if place != (2, 3):
            session.save(*place, session.step(*place).texts, accepted=True)
    assert session.next_open() == session.step(0, 0).next_open == session.step(3, 4).next_open == (2, 3)
    assert session.step(2, 3).next_open is None
    session.save(2, 3, session.step(2, 3).texts, accepted=True)
    assert session.next_open() is None
    assert session.counts() == {"steps": 20, "accepted": 20, "edited": 0, "findings": 4}


def test_a_text_that_follows_from_an_edited_action_is_marked_until_the_step_is_accepted(annotated, server):
    changed = edit(annotated, 0, 1, action="tap it", result="new")
    for accepted, think in ((False, "written for the earlier action"), (True, "")):
        _, _, body = ask(server, "POST", "/step/0/1", changed | {"accepted": accepted})
        states = {"screen": "", "action": "edited", "think": think, "result": "edited"}
        assert json.loads(body)["states"] == states


def test_concurrent_edits_of_one_episode_are_all_kept(annotated, server):
    def save(number):
        assert ask(server, "POST", f"/step/2/{number}", edit(annotated, 2, number, screen=f"edit {number}"))[0] == 200

    threads = [threading.Thread(target=save, args=(number,)) for number in range(STEPS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = EditStore(annotated / ".annotation").load(ShardDataset(annotated).ids[2])
    assert {number: one.texts["screen"] for number, one in stored.items()} == {n: f"edit {n}" for n in range(STEPS)}


def test_a_damaged_edit_is_named(annotated, server):
    ask(server, "POST", "/step/0/0", edit(annotated, screen="new"))
    (path,) = edits_in(annotated)
    for content in ("{", '{"steps": {"0": {"texts": {"goal": "x"}, "accepted": true}}}', '{"steps": []}'):
        path.write_text(content)
        with pytest.raises(DatasetError, match=path.name):
            ReviewSession(annotated)


def test_an_incomplete_annotation_cannot_be_reviewed(annotated, tmp_path, capsys):
    next(annotated.glob("general/*.parquet")).unlink()
    assert main(["annotate", "--review", "--output", str(annotated)]) == FAILED
    assert "not annotated yet" in capsys.readouterr().err
    assert main(["annotate", "--review", "--output", str(tmp_path / "nothing")]) == FAILED
    assert "does not hold an annotation" in capsys.readouterr().err


def test_a_port_that_cannot_be_used_is_named(annotated, server, capsys):
    words = ["annotate", "--review", "--output", str(annotated), "--port"]
    assert main([*words, str(server.server_port)]) == FAILED
    assert f"port {server.server_port} cannot be used" in capsys.readouterr().err
    with pytest.raises(SystemExit) as leaving:
        main([*words, "65536"])
    assert leaving.value.code == USAGE
    assert "'65536' is not a port" in capsys.readouterr().err


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_end_of_the_command_writes_the_edits(annotated, end):
    command = [sys.executable, "-m", "vlm_agent.cli", "annotate", "--review", "--output", str(annotated)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    try:
        line = process.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        assert main(["annotate", "--finish", "--output", str(annotated)]) == FAILED  # the review holds the folder
        host, _, token = address.removeprefix("http://").partition("/?token=")
        connection = http.client.HTTPConnection(host, timeout=30)
        headers = {"X-Page-Token": token, "Content-Type": "application/json"}
        connection.request("POST", "/step/3/0", json.dumps(edit(annotated, 3, 0, screen="at the end")), headers)
        assert connection.getresponse().status == 200
        process.send_signal(end)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "1 steps edited, 1 accepted" in output
    finally:
        process.kill()
        process.wait()
    assert ShardDataset(annotated).without_pixels(3).steps[0].notes["screen"] == "at the end"
