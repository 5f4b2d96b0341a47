"""Every problem with a phone has its own error, whose message names the phone and a remedy."""

import socket
import threading

import pytest

from vlm_agent.cli.doctor.checks.programs import ADB
from vlm_agent.devices import device_address
from vlm_agent.devices.adb.discovery import server_address
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.devices.errors import DeviceError, LockedError, NoDeviceError
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer
from vlm_agent.simulator.adb_daemon.shell.session import output


@pytest.fixture
def pretended(monkeypatch):
    """Makes the clients of this process use a fake adb server that answers from a table."""
    listener = socket.create_server(("127.0.0.1", 0))
    answers = {"host:version": b"0029"}
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(listener.getsockname()[1]))
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)

    def answer() -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            with end, end.makefile("rb") as stream:
                answer = answers.get(stream.read(int(stream.read(4), 16)).decode(), b"")
                end.sendall(b"OKAY%04x%s" % (len(answer), answer))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()

    def devices(*lines: str, **others: str) -> None:
        answers["host:devices"] = "".join(f"{line}\n" for line in lines).encode()
        answers.update({f"host:{name}": text.encode() for name, text in others.items()})

    yield devices
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_without_adb_the_error_names_its_package(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(tmp_path / "adb"))
    with pytest.raises(NoDeviceError, match="apt-get install adb"):
        AdbPhone()


def test_no_phone(pretended):
    pretended()
    with pytest.raises(NoDeviceError, match="USB debugging"):
        AdbPhone()


def test_another_phone_than_the_requested_one(pretended, monkeypatch):
    pretended("A1\tdevice", "B2\tdevice")
    with pytest.raises(NoDeviceError, match=r"phone C3 is not connected; connected: A1, B2"):
        AdbPhone("C3")
    monkeypatch.setenv("ANDROID_SERIAL", "D4")
    with pytest.raises(NoDeviceError, match="phone D4 is not connected"):
        AdbPhone()


def test_a_phone_on_the_network_that_does_not_answer(pretended):
    pretended(**{"connect:10.0.0.9:5555": "failed to connect to '10.0.0.9:5555': No route to host"})
    with pytest.raises(NoDeviceError, match="No route to host"):
        AdbPhone("10.0.0.9:5555")


def test_a_phone_still_listed_as_offline_is_reconnected(one_adb):
    handset = Handset(SimulatedPhone(7))
    with PhoneServer(handset) as server:
        one_adb.run("connect", server.serial)
    with PhoneServer(handset, server.port), AdbPhone(server.serial, settle_interval=0.0) as phone:
        assert phone.screenshot().shape == (448, 208, 3)


@pytest.mark.parametrize("serial", [None, ""])
def test_two_phones_without_a_serial(pretended, monkeypatch, serial):
    if serial is not None:
        monkeypatch.setenv("ANDROID_SERIAL", serial)
    pretended("A1\tdevice", "B2\toffline")
    with pytest.raises(NoDeviceError, match=r"2 phones .* A1, B2"):
        AdbPhone()


@pytest.mark.parametrize(
    ("state", "error", "remedy"),
    [
        ("offline", NoDeviceError, "plug it in again"),
        ("recovery", NoDeviceError, "recovery"),
        ("unauthorized", NoDeviceError, "confirm the question"),
        ("no permissions (user in plugdev group; are your udev rules wrong?)", NoDeviceError, "udev"),
    ],
)
def test_a_phone_in_an_unusable_state(pretended, state, error, remedy):
    pretended(f"A1\t{state}")
    with pytest.raises(error, match=remedy):
        AdbPhone("A1")


def test_a_serial_may_have_spaces(pretended):
    serial = "adb-1A2B-xyz (2)._adb-tls-connect._tcp"
    pretended(f"{serial}\tdevice")
    for asked in (None, serial):
        with pytest.raises(NoDeviceError, match="before 7") as raised:
            AdbPhone(asked)
        assert str(raised.value).startswith(f"{serial} runs an Android")
    assert device_address(f"adb:{serial}")


@pytest.mark.parametrize("port", ["abc", "0", "-1", "65536", "5037.0", "٥٠٣٧", " 5037"])
def test_a_port_of_adbs_server_that_is_no_number(port):
    with pytest.raises(NoDeviceError, match=f"ANDROID_ADB_SERVER_PORT is {port!r}"):
        server_address({"ANDROID_ADB_SERVER_PORT": port})


ADDRESS, PORT, SOCKET = "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_ADB_SERVER_PORT", "ADB_SERVER_SOCKET"


@pytest.mark.parametrize(
    ("environment", "host", "port"),
    [
        ({}, "127.0.0.1", 5037),
        ({PORT: "5099"}, "127.0.0.1", 5099),
        ({PORT: ""}, "127.0.0.1", 5037),
        ({ADDRESS: "10.0.0.9"}, "10.0.0.9", 5037),
        ({ADDRESS: "10.0.0.9", PORT: "5099"}, "10.0.0.9", 5099),
        ({SOCKET: "tcp:5098"}, "127.0.0.1", 5098),
        ({SOCKET: "tcp:localhost:5098"}, "localhost", 5098),
        ({SOCKET: "tcp:172.17.0.1:5037", ADDRESS: "10.0.0.9", PORT: "5099"}, "172.17.0.1", 5037),
    ],
)
def test_the_server_is_that_of_adb(environment, host, port):
    address = server_address(environment)
    assert (address.host, address.port) == (host, port)


@pytest.mark.parametrize(
    "socket_address",
    [
        *("", "127.0.0.1:5037", "local:/tmp/adb", "localabstract:adb", "localfilesystem:/tmp/adb", "vsock:2:5037"),
        *("acceptfd:3", "tcp:", "tcp:host", "tcp:host:", "tcp::5037", "tcp:[::1]:5037", "tcp:host:0", "tcp:host:65536"),
        *("tcp:host:5037\n", "unix:/tmp/adb", "TCP:host:5037"),
    ],
)
def test_another_form_of_adbs_socket_is_refused_by_name(monkeypatch, socket_address):
    monkeypatch.setenv(SOCKET, socket_address)
    with pytest.raises(NoDeviceError, match="ADB_SERVER_SOCKET"):
        AdbPhone()


@pytest.mark.parametrize("host", ["", "::1", "[::1]", "10.0.0.9:5037"])
def test_another_form_of_adbs_address_is_refused_by_name(monkeypatch, host):
    monkeypatch.setenv(ADDRESS, host)
    with pytest.raises(NoDeviceError, match="ANDROID_ADB_SERVER_ADDRESS"):
        AdbPhone()


@pytest.mark.parametrize("variables", [{SOCKET: "tcp:127.0.0.1:{port}"}, {ADDRESS: "127.0.0.1", PORT: "{port}"}])
def test_a_phone_of_the_server_that_a_variable_names_is_used(one_adb, served, monkeypatch, variables):
    monkeypatch.delenv(PORT)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(port=one_adb.port))
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        assert phone.screenshot().shape == (448, 208, 3)


def test_the_check_of_adb_leaves_a_named_server_running(one_adb, monkeypatch):
    monkeypatch.setenv(SOCKET, f"tcp:127.0.0.1:{one_adb.port}")
    monkeypatch.setenv(PORT, "1")
    assert "phone(s)" in ADB.run()
    assert one_adb.run("devices").stdout.startswith(b"List of devices")
    assert one_adb.is_running


def test_a_named_server_that_does_not_answer_is_named_with_its_variable(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv(SOCKET, f"tcp:127.0.0.1:{port}")
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(tmp_path / "adb"))
    with pytest.raises(NoDeviceError, match=rf"127\.0\.0\.1:{port} \(ADB_SERVER_SOCKET\) does not answer") as error:
        AdbPhone()
    assert "apt-get" not in str(error.value)


def test_an_android_without_shell_v2(pretended):
    pretended("A1\tdevice")
    with pytest.raises(NoDeviceError, match="before 7"):
        AdbPhone()


def test_an_unauthorised_phone_with_the_real_adb(adb):
    with PhoneServer(Handset(SimulatedPhone(7)), is_authorised=False) as server:
        with pytest.raises(NoDeviceError, match=f"{server.serial} has not allowed"):
            AdbPhone(server.serial, patience=5.0)
        adb.run("disconnect", server.serial)


def test_a_closed_port_with_the_real_adb(adb):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serial = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(NoDeviceError, match=serial):
        AdbPhone(serial)


@pytest.mark.parametrize(
    ("state", "error", "remedy"), [("is_awake", LockedError, "turn it on"), ("is_locked", LockedError, "unlock it")]
)
def test_screens_off_and_locked_are_reported_at_opening_and_later(one_adb, served, state, error, remedy):
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        phone.screenshot()
        setattr(served.handset, state, not getattr(served.handset, state))
        with pytest.raises(error, match=remedy):
            phone.screenshot()
    with pytest.raises(error, match=served.serial):
        AdbPhone(served.serial)
    assert served.serial.encode() not in one_adb.run("devices").stdout


def test_a_screen_that_is_not_a_png(one_adb, served):
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        served._shell._commands["screencap"] = lambda _: output("Failed to open the display")
        with pytest.raises(DeviceError, match="Failed to open the display"):
            phone.screenshot()
