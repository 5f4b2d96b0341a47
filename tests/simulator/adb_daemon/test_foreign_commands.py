"""Lines of studies/simulated_phone/foreign_commands.py: none reports success without Android's output and effect."""

import pytest
from helpers.phones.adb_servers import AdbServer

from studies.simulated_phone.foreign_commands import CASES, FAILS, SILENTLY_WRONG, WORKS, Case, outcome
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer
from vlm_agent.simulator.adb_daemon.shell.commands import TOOLS
from vlm_agent.simulator.adb_daemon.shell.session import STDERR, STDOUT, Transcript, output

NOT_OFFERED = {
    "echo $((1+1))",
    "echo ${HOME:-x}",
    "echo {a,b}",
    "for i in 1 2; do echo $i; done",
    "if true; then echo yes; fi",
    "input text hello world",
    "wm density 320",
}
"""Lines that Android runs and the simulated phone refuses."""


def expected(case: Case) -> str:
    return FAILS if case.check is None or case.line in NOT_OFFERED else WORKS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.line)
def test_a_line_works_as_on_android_or_fails(case):
    assert outcome(case)[0] == expected(case)


def test_every_line_does_the_same_by_adb(adb_servers):
    adb: AdbServer = adb_servers("adbutils")

    def run(handset: Handset, line: str) -> Transcript:
        with PhoneServer(handset) as server:
            adb.run("connect", server.serial)
            done = adb.run("-s", server.serial, "shell", line, check=False)
            adb.run("disconnect", server.serial)
        written = ((STDOUT, done.stdout), (STDERR, done.stderr))
        return Transcript(tuple((kind, data) for kind, data in written if data), done.returncode)

    assert [case.line for case in CASES if outcome(case, run)[0] != expected(case)] == []


def test_success_without_an_effect_is_noticed(monkeypatch):
    monkeypatch.setitem(TOOLS, "am", lambda *_: output("done"))
    case = next(one for one in CASES if one.line == "am force-stop org.shop")
    assert outcome(case)[0] == SILENTLY_WRONG
