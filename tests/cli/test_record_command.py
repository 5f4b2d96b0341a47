"""`vlm-agent record`: a simulated phone until Enter or Ctrl-C, a trace, and errors."""

import io
import json
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from vlm_agent.agents import read_screens
from vlm_agent.agents.examples.store import Demonstrations
from vlm_agent.agents.scripted import ScriptedAgent
from vlm_agent.cli import FAILED, INTERRUPTED, OK, USAGE, main
from vlm_agent.datasets.sources.trace_writer import TraceWriter
from vlm_agent.datasets.sources.traces import HEADING, STEPS, Heading, sealed
from vlm_agent.devices.acting.demonstrating.observed import Observed, ObservedAction, ObservedScreen
from vlm_agent.devices.acting.guard import Guard
from vlm_agent.devices.acting.loop import act
from vlm_agent.episodes import Action, UiElement, Widget
from vlm_agent.files import CHECKSUM, write_checked
from vlm_agent.screens.seen import Text
from vlm_agent.screens.understand import LoadedReaders, understand
from vlm_agent.simulator import SimulatedPhone, sample_task
from vlm_agent.simulator.adb_daemon.wire import CLSE, CNXN, MAX_PAYLOAD, OKAY, OPEN, VERSION, Packet, read_packet
from vlm_agent.texts.secrets import MASK


def record(*arguments) -> int:
    try:
        return main(["record", *map(str, arguments)])
    except SystemExit as error:
        return error.code


def run_on(serial: str, *lines: str) -> None:
    """Runs shell lines as adb's server does."""
    host, _, port = serial.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as end, end.makefile("rb") as stream:
        end.sendall(Packet(CNXN, VERSION, MAX_PAYLOAD, b"host::").encoded())
        assert read_packet(stream).command == CNXN
        for number, line in enumerate(lines, 1):
            end.sendall(Packet(OPEN, number, 0, f"exec:{line}\0".encode()).encoded())
            while (packet := read_packet(stream)).command != CLSE:
                if packet.command != OKAY:
                    end.sendall(Packet(OKAY, number, packet.arg0).encoded())
            end.sendall(Packet(CLSE, number, packet.arg0).encoded())


@pytest.mark.parametrize("ends", ["enter", "ctrl-c"])
def test_a_phone_that_a_client_operates_until_enter_or_ctrl_c(tmp_path, ends):
    store = tmp_path / "shown.sqlite"
    command = [sys.executable, "-m", "vlm_agent.cli", "record", "--device", "simulated:general/test/7"]
    command += ["--app", "Clock", "--output", str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == f"Goal: {sample_task('general', 'test', 7).goal}\n"
        serial = process.stdout.readline().removeprefix("adb connect ").strip()
        assert "Enter or Ctrl-C" in process.stdout.readline()
        run_on(serial, "input swipe 100 400 100 100 300", "input keyevent HOME", "screencap -p")
        if ends == "enter":
            process.stdin.write("\n")
            process.stdin.flush()
        else:
            process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == OK
    (one,) = Demonstrations(store).all()
    assert one.lines == ("swipe up", "press home")
    assert (one.goal, one.app) == (sample_task("general", "test", 7).goal, "Clock")
    assert "1. swipe up" in rest
    assert "Demonstration 1" in rest


def test_a_typed_card_number_is_in_no_file(tmp_path):
    task = sample_task("web_shopping", "test", 1)
    phone = SimulatedPhone(task.seed)
    task.set_up(phone)
    actions = [step.action for step in task.solve(phone, pixels=False)]
    before = actions[: next(number for number, one in enumerate(actions) if one.text)]
    height, width = phone.size
    command = [sys.executable, "-m", "vlm_agent.cli", "record", "--device", "simulated:web_shopping/test/1"]
    command += ["--output", str(tmp_path / "shown.sqlite"), "--goal", "pay with 4111 1111 1111 1111"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        process.stdout.readline()
        serial = process.stdout.readline().removeprefix("adb connect ").strip()
        process.stdout.readline()
        touches = [(one.touch_yx, one.lift_yx) for one in before]
        run_on(
            serial,
            *(
                f"input swipe {int(x * width)} {int(y * height)} {int(to_x * width)} {int(to_y * height)} 300"
                for (y, x), (to_y, to_x) in touches
            ),
            "input text 4111%s1111",
            "input text %s1111%s1111",
        )
        out, _ = process.communicate("\n")
    (one,) = Demonstrations(tmp_path / "shown.sqlite").all()
    assert f"type '{MASK}'" in one.lines[-1]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [b"1111" in path.read_bytes() for path in files] == [False] * len(files)
    assert "1 typed secrets masked" in out


@pytest.fixture
def trace(tmp_path):
    task = sample_task("general", "test", 7)
    phone = SimulatedPhone(task.seed)
    task.set_up(phone)
    actions = [step.action for step in task.solve(phone, pixels=False)]
    fresh = SimulatedPhone(task.seed)
    task.set_up(fresh)
    with TraceWriter(tmp_path / "trace", Heading("1", task.goal, "agent", "phone")) as writer:
        act(ScriptedAgent(actions), fresh, task.goal, writer, Guard())
    return tmp_path / "trace"


def test_a_trace_becomes_a_demonstration(trace, tmp_path, capsys):
    store = tmp_path / "shown.sqlite"
    assert record("--trace", trace, "--output", store) == OK
    (one,) = Demonstrations(store).all()
    assert one.goal == sample_task("general", "test", 7).goal
    assert one.lines[-1].startswith("tap ")
    assert record("--trace", trace, "--goal", "another", "--output", store) == OK
    assert [one.goal for one in Demonstrations(store).all()][1] == "another"


def test_how_a_trace_ended_is_shown(trace, tmp_path, capsys):
    steps, output = trace / STEPS, ["--output", tmp_path / "shown.sqlite"]
    *lines, end = steps.read_text().splitlines(keepends=True)
    content = {key: value for key, value in json.loads(end).items() if key != "crc32"}
    stopped = sealed(json.dumps(content | {"end": "stopped", "message": "by Ctrl-C"})) + "\n"
    for last, expected in (
        (end, "Ended: complete"),
        (stopped, "Ended: stopped, by Ctrl-C"),
        ("", "the run was killed"),
    ):
        steps.write_text("".join([*lines, last]))
        assert record("--trace", trace, *output) == OK
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reached", "line"),
    [
        (None, "The trace does not state whether its goal was reached. Ended: complete"),
        (True, "Ended: complete. The goal was reached"),
        (False, "Ended: complete. The goal was not reached"),
    ],
)
def test_a_trace_states_whether_its_goal_was_reached(trace, tmp_path, capsys, reached, line):
    heading = json.loads((trace / HEADING).read_text()) | {"reached": reached}
    write_checked(trace / HEADING, {key: value for key, value in heading.items() if key != CHECKSUM})
    assert record("--trace", trace, "--output", tmp_path / "shown.sqlite") == OK
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.ocr
@pytest.mark.slow
def test_the_elements_of_a_trace_may_be_read_from_its_pixels(tmp_path, capsys):
    phone = SimulatedPhone(7, (960, 432))
    store, folder = tmp_path / "shown.sqlite", tmp_path / "trace"
    name = next(one for one in phone.elements() if len(one.text) > 4 and one.centre_yx[0] > 0.2)
    with TraceWriter(folder, Heading("1", "a goal", "agent", "phone")) as writer:
        act(ScriptedAgent([Action.tap(*name.centre_yx), Action.complete()]), phone, "a goal", writer, Guard())
    assert record("--trace", folder, "--elements", "read", "--output", store) == OK
    assert Demonstrations(store).get(1).lines == (f"tap '{name.text}'",)


class TwoSwitches:
    """Two rows with the same label, and a switch at the other end of each."""

    ROWS = (0.3, 0.5)

    def read(self, pixels):
        return tuple(Text((row, 0.08, 0.03, 0.2), "Location") for row in self.ROWS)

    def detect(self, pixels):
        return tuple(Widget("switch", (row - 0.01, 0.8, 0.05, 0.12), True) for row in self.ROWS)


def test_with_read_elements_a_touch_of_the_label_of_a_switch_has_its_name(tmp_path, monkeypatch, capsys):
    read_screens.ScreenReader.of.cache_clear()
    readers = LoadedReaders(TwoSwitches(), TwoSwitches())
    monkeypatch.setattr(read_screens, "understand", lambda pixels, _: understand(pixels, readers))
    store, folder = tmp_path / "shown.sqlite", tmp_path / "trace"
    touches = [Action.tap(0.515, x) for x in (0.15, 0.85)]
    with TraceWriter(folder, Heading("1", "a goal", "agent", "phone")) as writer:
        act(ScriptedAgent([*touches, Action.complete()]), SimulatedPhone(7), "a goal", writer, Guard())
    assert record("--trace", folder, "--elements", "read", "--output", store) == OK
    assert Demonstrations(store).get(1).lines == ("tap 'Location' (2 of 2)", "tap 'Location' (2 of 2)")


def test_nothing_recorded_stores_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("vlm_agent.cli.record.wait_for_end", lambda *_: None)
    assert record("--device", "simulated", "--goal", "a goal", "--output", tmp_path / "s") == FAILED
    assert "Nothing was recorded" in capsys.readouterr().out
    assert not (tmp_path / "s").exists()


def test_a_recording_that_a_signal_ends_is_not_stored(tmp_path, monkeypatch, capsys, stop_signal):
    stopped = SimpleNamespace(select=lambda *_: signal.raise_signal(stop_signal))
    monkeypatch.setattr("vlm_agent.cli.record.select", stopped)
    assert record("--device", "simulated", "--goal", "a goal", "--output", tmp_path / "s") == INTERRUPTED
    assert "recorded" not in capsys.readouterr().out


def test_errors_come_before_anything_is_shown(trace, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    wrong = tmp_path / "wrong"
    wrong.write_text("not a store\n" * 100)
    output = ["--output", tmp_path / "s"]
    for arguments, status, message in (
        (["--device", "simulated", *output], USAGE, "--goal is missing"),
        (["--device", "simulated", "--goal", " ", *output], USAGE, "one line of text"),
        (["--device", "nowhere", "--goal", "x", *output], FAILED, "'nowhere' is not a device"),
        (["--device", "simulated", "--goal", "x", "--output", wrong], FAILED, "not a store of demonstrations"),
        (["--trace", tmp_path / "none", *output], FAILED, "not the folder of a trace"),
        (output, USAGE, "one of the arguments --device --trace"),
        (["--device", "adb", "--port", 5600, "--goal", "x", *output], USAGE, "simulated phone"),
        (["--device", "simulated", "--port", 65536, "--goal", "x", *output], USAGE, "'65536' is not a port"),
        (["--device", "simulated", "--port=-1", "--goal", "x", *output], USAGE, "'-1' is not a port"),
    ):
        assert record(*arguments) == status
        assert message in " ".join(capsys.readouterr().err.split())


def test_a_run_that_gave_up_asks_to_be_shown(tmp_path, monkeypatch, capsys):
    from helpers.agents.prepared_agent import Prepared

    from vlm_agent.cli import act as act_command

    class Learning(Prepared):
        demonstrations: str | None = None

        def asks_to_be_shown(self, goal):
            return None if self.demonstrations is None else f"record {goal} in {self.demonstrations}"

    def run(store):
        agent = ScriptedAgent([Action.impossible()])
        monkeypatch.setattr(
            act_command.agent_options, "chosen_agent", lambda _: Learning(prepared=agent, demonstrations=store)
        )
        folder = tmp_path / f"trace {store}"
        main(["act", "--agent", "RUN", "--device", "simulated", "--goal", "open it's menu", "--trace", str(folder)])
        return capsys.readouterr().out

    assert "record open it's menu in shown.sqlite" in run("shown.sqlite")
    assert "record" not in run(None)


def test_a_typed_password_is_masked_in_the_goal_too(monkeypatch, tmp_path, capsys):
    form = ObservedScreen("app/.Main", (UiElement((0.1, 0.1, 0.1, 0.8), "Password"),))
    session = Observed([ObservedAction(Action.type_text("hi7-go"), form)], form)
    monkeypatch.setattr("vlm_agent.cli.record._of_trace", lambda options, _: (options.goal, session))
    store = tmp_path / "shown.sqlite"
    assert record("--trace", tmp_path, "--goal", "log in with hi7-go", "--output", store) == OK
    (one,) = Demonstrations(store).all()
    assert one.goal == f"log in with {MASK}"
    assert b"hi7" not in store.read_bytes()
    assert "hi7" not in capsys.readouterr().out
