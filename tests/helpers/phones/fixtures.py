"""Fixtures: a phone served over ADB, and adb servers to reach it."""

import adbutils
import pytest
from helpers.phones.adb_servers import MISSING, PROGRAMS, AdbServer

from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer


@pytest.fixture(scope="session")
def adb_servers(tmp_path_factory):
    """Program → its running server, started on first use and stopped at the end."""
    running = {}

    def server(name: str) -> AdbServer:
        if PROGRAMS[name] is None:
            pytest.skip(MISSING)
        if name not in running:
            running[name] = AdbServer(PROGRAMS[name], tmp_path_factory.mktemp(f"adb-{name}")).__enter__()
        return running[name]

    yield server
    for started in running.values():
        started.__exit__()


@pytest.fixture
def use_adb(adb_servers, monkeypatch):
    """Makes the clients of this process use the server of a program, and returns it."""
    used = []

    def use(name: str) -> AdbServer:
        used.append(adb_servers(name))
        for variable in ("ADBUTILS_ADB_PATH", "ANDROID_ADB_SERVER_PORT"):
            monkeypatch.setenv(variable, used[-1].environment[variable])
        monkeypatch.delenv("ANDROID_SERIAL", raising=False)
        return used[-1]

    yield use
    for server in used:
        adbutils.AdbClient(port=server.port).disconnect("")  # all phones


@pytest.fixture(params=tuple(PROGRAMS))
def adb(request, use_adb) -> AdbServer:
    """The server of each program in turn."""
    return use_adb(request.param)


@pytest.fixture
def one_adb(use_adb) -> AdbServer:
    """The server inside adbutils, for tests that do not depend on the program."""
    return use_adb("adbutils")


@pytest.fixture
def served():
    """A phone served over ADB: `served.handset`, at `served.serial`."""
    with PhoneServer(Handset(SimulatedPhone(7))) as server:
        yield server
