"""`vlm-agent view` over HTTP: what it lists, what it answers, and what it refuses."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace
from urllib.parse import quote

import numpy as np
import pytest
from helpers.agents.chat_server import Reply, serving
from helpers.pages.served_pages import exchange
from helpers.pages.viewing import scripted, viewing
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console

from vlm_agent.action_languages import default_language
from vlm_agent.agents.vision_tasker import VisionTaskerSettings
from vlm_agent.cli import FAILED, INTERRUPTED, main
from vlm_agent.episodes import Action
from vlm_agent.evaluation.viewing.asking import MOST_BYTES, Asking
from vlm_agent.files import read_checked, write_checked

TAP = default_language().encode(Action.tap(0.5, 0.25))


@pytest.fixture
def server(output):
    with viewing(output, scripted(TAP)) as server:
        yield server


def request(server, method, path, body=b"", **headers):
    """(status, headers, body); `headers` with underscores, and None for the defaults to leave out."""
    defaults = {
        "Host": server.hosts[0],
        "Cookie": f"{server.cookie}={server.token}",
        "X-Page-Token": server.token if method == "POST" else None,
        "Content-Length": str(len(body)) if method == "POST" else None,
    }
    chosen = defaults | {name.replace("_", "-"): value for name, value in headers.items()}
    return exchange(server, method, path, chosen, body)


def picture(kind="PNG", size=(60, 120), **options):
    file = io.BytesIO()
    Image.new("RGB", size, (200, 210, 220)).save(file, kind, **options)
    return file.getvalue()


def ask(server, data, goal="open the clock"):
    return request(server, "POST", f"/ask?goal={quote(goal)}", data)


def test_the_start_page_lists_every_kind_with_its_headline(server):
    page = request(server, "GET", "/")[2].decode()
    for words in ("trained: 67.5 % [64.3, 70.7]", "7 of 9", "five: 1 agents (first)", "/file/evaluation/report.html"):
        assert words in page
    assert "/trace/online/agent/00000" in page
    assert "damaged (Expecting" in page
    assert '<img src="/file/./agent.gif"' in page and "/file/evaluation/report.html" in page


def test_a_trace_says_how_it_ended_and_whether_its_task_succeeded(server, output):
    for path in ("/", "/trace/online/agent/00000"):
        page = request(server, "GET", path)[2].decode()
        assert "Ended: complete" in page and "✓ success" in page
    result = output / "online/agent/00000/result.json"
    write_checked(result, read_checked(result, "") | {"success": False})
    assert "✗ no success" in request(server, "GET", "/")[2].decode()
    result.write_text("{")
    page = request(server, "GET", "/")[2].decode()
    assert "Ended: complete" in page and "success</span>" not in page


def test_pages_have_the_style_of_reports(server):
    for path in ("/", "/ask", "/trace/online/agent/00000"):
        assert b'href="/report.css"' in request(server, "GET", path)[2]
    status, headers, style = request(server, "GET", "/report.css")
    assert (status, headers["Content-Type"]) == (200, "text/css; charset=utf-8") and b"--paper" in style


def test_a_served_model_is_listed_by_the_name_that_its_evaluation_records(output, server):
    plan = {"described": {"runs": ["trained", "grey_screens"]}, "given": {"label": "a served model"}}
    (output / "evaluation" / "plan.json").write_text(json.dumps(plan))
    about = {"about": {"label": "another served model"}, "runs": {"trained": {"overall": {"successes": 7, "tasks": 9}}}}
    (output / "online" / "online.json").write_text(json.dumps(about))
    page = request(server, "GET", "/")[2].decode()
    assert "a served model: 67.5 %" in page
    assert "another served model: 7 of 9" in page
    assert "trained: " not in page


def test_hostile_texts_are_escaped(server):
    for path in ("/", "/trace/online/agent/00000"):
        status, _, page = request(server, "GET", path)
        assert status == 200
        assert b"window.pwned" in page
        assert b"<script>window" not in page
        assert b"<img src=x" not in page


def test_a_trace_is_a_contact_sheet_and_an_animation(server):
    for kind, form in (("sheet", "PNG"), ("animation", "GIF")):
        status, _, data = request(server, "GET", f"/{kind}/online/agent/00000")
        assert status == 200
        assert Image.open(io.BytesIO(data)).format == form


def test_a_screen_of_a_trace_that_is_outside_the_folder_is_not_drawn(server, output):
    screen = output / "online/agent/00000/screen_000.png"
    screen.rename(output.parent / "outside.png")
    screen.symlink_to(output.parent / "outside.png")
    for kind in ("trace", "sheet", "animation"):
        assert request(server, "GET", f"/{kind}/online/agent/00000")[0] == 404


def test_a_file_whose_name_is_not_utf_8_is_listed_and_served(server, output):
    (output / os.fsdecode(b"caf\xe9.png")).write_bytes(picture())
    status, _, page = request(server, "GET", "/")
    assert status == 200 and b"/file/./caf%E9.png" in page
    assert request(server, "GET", "/file/caf%E9.png")[0] == 200


def test_a_page_of_the_folder_is_sandboxed(server):
    status, headers, page = request(server, "GET", "/file/evaluation/report.html")
    assert (status, page[:15]) == (200, b"<!doctype html>")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'")
    assert "allow-same-origin" not in policy


@pytest.mark.parametrize(
    "path",
    [
        "/file/../secret.html",
        "/file/%2e%2e/secret.html",
        "/file/evaluation/..%2f..%2fsecret.html",
        "/file//etc/passwd",
        "/file/link.html",
        "/file/linked/secret.html",
        "/file/%00.html",
        "/file/evaluation/metrics.json",
        "/trace/..",
        "/trace/evaluation",
        "/view.py",
    ],
)
def test_nothing_outside_the_folder_is_served(server, output, path):
    (output.parent / "secret.html").write_text("secret")
    (output / "link.html").symlink_to(output.parent / "secret.html")
    (output / "linked").symlink_to(output.parent)
    status, _, body = request(server, "GET", path)
    assert status == 404
    assert b"secret" not in body


def test_other_sites_and_requests_without_the_token_are_refused(server):
    for headers in ({"Cookie": None}, {"Origin": "http://example.org"}, {"Host": "example.org"}):
        for path in ("/", "/ask", "/file/evaluation/report.html", "/trace/online/agent/00000"):
            assert request(server, "GET", path, **headers)[0] == 403
    for headers in ({"X_Page_Token": None}, {"X_Page_Token": "wrong"}, {"Origin": "null"}, {"Host": "example.org"}):
        assert request(server, "POST", "/ask?goal=x", picture(), **headers)[0] == 403


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_the_agent_answers_for_a_picture(server, kind):
    status, _, body = ask(server, picture(kind))
    reply = json.loads(body)
    assert status == 200
    assert reply["answer"] == TAP
    assert re.fullmatch(r"tap at x 0\.2\d, y 0\.5\d", reply["action"])
    assert reply["picture"].startswith("data:image/png;base64,")
    assert reply["tokens"] is None


def test_pictures_and_goals_that_cannot_be_used_are_one_line(server):
    bomb = bytearray(picture())
    bomb[16:24] = (60000).to_bytes(4, "big") * 2
    noise = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (90, 90, 3), dtype=np.uint8)).save(noise, "PNG")
    cases = {
        b"": "not a picture",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>": "not a picture",
        picture("GIF"): "not a picture",
        bytes(bomb): "",
        noise.getvalue()[:9000]: "damaged",
    }
    for data, words in cases.items():
        status, _, body = ask(server, data)
        assert (status, body.count(b"\n")) == (400, 1)
        assert words in body.decode()
    assert ask(server, picture(), " ")[0] == 400
    assert ask(server, picture(), "x" * 2001)[0] == 400
    assert request(server, "POST", "/ask?goal=x", Content_Length=str(MOST_BYTES + 1))[0] == 413


def test_without_an_agent_the_page_says_how_to_choose_one(output):
    with viewing(output) as server:
        assert b"--agent FILE" in request(server, "GET", "/ask")[2]
        assert ask(server, picture())[0] == 404


def test_a_folder_that_does_not_exist_is_an_error(tmp_path, capsys):
    assert main(["view", str(tmp_path / "none")]) == FAILED
    assert "is not a folder" in capsys.readouterr().err


def test_questions_leave_no_file_a_second_reply_is_read_from_disk_and_ctrl_c_ends_the_command(output, tmp_path):
    """No file where the command runs, and none in OUT, which may be another's."""
    (here := tmp_path / "here").mkdir()
    before = sorted(output.rglob("*"))
    with serving(lambda *_: Reply("press home")) as (url, requests):
        agent = tmp_path / "agent.yaml"
        agent.write_text(f"agent: endpoint\nendpoint: {url}\nmodel: m\n")
        command = [sys.executable, "-m", "vlm_agent.cli", "view", str(output), "--agent", str(agent)]
        named = {"env": os.environ | {"PYTHONUNBUFFERED": "1"}, "cwd": here, "text": True}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **named)
        try:
            host, token = re.search(r"http://(\S+)/\?token=(\S+)", process.stdout.readline()).groups()
            headers = {"Host": host, "X-Page-Token": token, "Content-Length": str(len(picture()))}
            there = SimpleNamespace(server_address=("127.0.0.1", int(host.partition(":")[2])))
            replies = [exchange(there, "POST", "/ask?goal=go%20home", headers, picture()) for _ in range(2)]
            answers = [json.loads(body) for _, _, body in replies]
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, errors) == (INTERRUPTED, "interrupted\n")
    assert [answer["from_disk"] for answer in answers] == [False, True] and len(requests) == 1
    assert [answer["action"] for answer in answers] == ["press home"] * 2
    assert (sorted(output.rglob("*")), list(here.iterdir())) == (before, [])


@pytest.mark.parametrize("shown", ["html", "words"])
def test_an_agent_that_reads_elements_has_those_that_are_read_from_the_picture(output, tmp_path, shown):
    screen = Image.new("RGB", (360, 640), "white")
    ImageDraw.Draw(screen).text((30, 300), "Clear cart", "black", ImageFont.load_default(40))
    file = io.BytesIO()
    screen.save(file, "PNG")
    with serving(lambda number, body: Reply('{"action": "tap", "element": 0}')) as (url, requests):
        keys = {"endpoint": url, "model": "m", "calls": str(tmp_path / "calls"), "screen": shown}
        asking = Asking(VisionTaskerSettings(**keys), Console(quiet=True))
        with viewing(output, asking) as server:
            status, _, body = ask(server, file.getvalue())
    answer = json.loads(body)
    assert (status, len(requests)) == (200, 1), body
    assert "Clear cart" in str(requests[0].body["messages"][1]["content"])
    assert "tap" in answer["action"]
