"""Device selection: starts adb's server, chooses one of its phones, and checks that it is usable."""

import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

import adbutils

from vlm_agent.devices.errors import NoDeviceError

CONNECT_SECONDS = 10.0
RETRY_SECONDS = 0.1

CONNECTION_ERRORS = (adbutils.AdbError, OSError, EOFError, ValueError, subprocess.SubprocessError)
"""Exceptions of adbutils when its socket closes, ValueError when it closes within a number, SubprocessError when adb's
server does not start in time."""

_TRANSIENT_STATES = ("authorizing", "connecting")

_TCP = re.compile(r"tcp:(?:(?P<host>[^:\[\]]+):)?(?P<port>[0-9]{1,5})")

_LOOPBACK, _PORT = "127.0.0.1", 5037


@dataclass(frozen=True)
class ServerAddress:
    """Where adb's server listens. `variable`: the environment variable that names another host, or empty."""

    host: str = _LOOPBACK
    port: int = _PORT
    variable: str = ""


def server_address(environment: Mapping[str, str]) -> ServerAddress:
    """The server that `adb` itself would use: ADB_SERVER_SOCKET, else ANDROID_ADB_SERVER_ADDRESS and _PORT.

    Raises NoDeviceError for a value that names no host and port.
    """
    socket = environment.get("ADB_SERVER_SOCKET")
    if socket is not None:
        match = _TCP.fullmatch(socket)
        if match is None:
            raise NoDeviceError(f"ADB_SERVER_SOCKET is {socket!r}; write tcp:HOST:PORT or tcp:PORT, or unset it")
        return ServerAddress(
            match["host"] or _LOOPBACK, _checked_port("ADB_SERVER_SOCKET", match["port"]), "ADB_SERVER_SOCKET"
        )
    # An empty port counts as none for adb.
    port = _checked_port("ANDROID_ADB_SERVER_PORT", environment.get("ANDROID_ADB_SERVER_PORT") or str(_PORT))
    host = environment.get("ANDROID_ADB_SERVER_ADDRESS")
    if host is None:
        return ServerAddress(port=port)
    if not host or set(host) & set(":[]"):
        raise NoDeviceError(f"ANDROID_ADB_SERVER_ADDRESS is {host!r}; write a name or an IPv4 address, or unset it")
    return ServerAddress(host, port, "ANDROID_ADB_SERVER_ADDRESS")


def _checked_port(variable: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 1 << 16):
        raise NoDeviceError(
            f"the port in {variable} is {text!r}, not a number from 1 to 65535; correct it, or unset it"
        )
    return int(text)


def start_server(answer_seconds: float) -> adbutils.AdbClient:
    """A client of the server that `adb` itself would use. Starts the server if necessary.

    `answer_seconds`: the socket timeout. Raises NoDeviceError if the server does not answer and cannot be started.
    """
    address = server_address(os.environ)
    client = adbutils.AdbClient(address.host, address.port, socket_timeout=answer_seconds)
    try:
        client.server_version()
    except CONNECTION_ERRORS as error:
        if address.variable:
            raise NoDeviceError(
                f"adb's server at {address.host}:{address.port} ({address.variable}) does not answer "
                f"({reason(error)}); start it there (`adb -a nodaemon server`), or unset {address.variable}"
            ) from error
        raise NoDeviceError(
            f"adb's server at port {client.port} does not answer and cannot be started ({reason(error)}); install "
            "Android's platform tools (Debian: apt-get install adb) and try `adb devices`"
        ) from error
    return client


def choose(client: adbutils.AdbClient, serial: str | None, patience: float) -> tuple[str, bool]:
    """The serial of the phone, and whether this call connected to it over the network.

    A `serial` of None selects ANDROID_SERIAL, or else the only connected phone. `patience`: the maximum time in seconds
    to wait while adb establishes the connection. Raises a DeviceError that explains why the phone cannot be used.
    """
    name = os.environ.get("ANDROID_SERIAL") or None if serial is None else serial  # an empty one counts as none for adb
    try:
        choice = _only_one(states(client)) if name is None else name
        is_new = _connect(client, choice)
        check_state(choice, _stable_state(client, choice, patience))
        features = adbutils.AdbDevice(client, serial=choice).get_features().split(",")
    except CONNECTION_ERRORS as error:
        raise NoDeviceError(f"{name or 'the phone'} cannot be connected to; adb says: {reason(error)}") from error
    if "shell_v2" not in features:
        # The older protocol has no exit status and cannot distinguish a broken connection from the end of a command.
        raise NoDeviceError(f"{choice} runs an Android before 7, whose adb has no shell_v2; it is not supported")
    return choice, is_new


def states(client: adbutils.AdbClient) -> dict[str, str]:
    """Serial → state, as `adb devices` prints them.

    A serial may have spaces: that of a phone that was paired over Wi-Fi has one if its name is not unique.
    """
    with client.make_connection() as connection:
        connection.send_command("host:devices")
        connection.check_okay()
        rows = [line.partition("\t") for line in connection.read_string_block().splitlines()]
    return {serial: state.strip() for serial, tab, state in rows if tab}


def check_state(serial: str, state: str) -> None:
    """Raises NoDeviceError for a state in which the phone cannot be used."""
    if state == "unauthorized":
        raise NoDeviceError(
            f"{serial} has not allowed this computer to debug it; unlock the phone and confirm the question on its "
            "screen (if no question appears, unplug the phone and plug it in again)"
        )
    if state.startswith("no permissions"):
        raise NoDeviceError(
            f"this user may not open {serial} over USB (`adb devices` says: no permissions); install Debian's "
            "android-sdk-platform-tools-common, which has the udev rules, and plug the phone in again"
        )
    if state != "device":
        raise NoDeviceError(
            f"{serial} is connected and does not answer (`adb devices` says: {state}); unplug it and plug it in again, "
            "or turn its USB debugging off and on"
        )


def reason(error: Exception) -> str:
    """The message of an exception, or its type if it has none."""
    return str(error) or type(error).__name__


def _only_one(phones: dict[str, str]) -> str:
    if not phones:
        raise NoDeviceError(
            "no phone is connected; plug one in and turn on its USB debugging (Settings, developer options), or use a "
            "phone on the network as HOST:PORT"
        )
    if len(phones) > 1:
        raise NoDeviceError(f"{len(phones)} phones are connected; choose one of {', '.join(phones)}")
    return next(iter(phones))


def _connect(client: adbutils.AdbClient, serial: str) -> bool:
    """Connects to a phone on the network. Returns whether this call connected it."""
    phones = states(client)
    if ":" not in serial:
        if serial not in phones:
            others = f"connected: {', '.join(phones)}" if phones else "none is connected"
            raise NoDeviceError(f"phone {serial} is not connected; {others} (see `adb devices`)")
        return False
    if phones.get(serial) == "device":
        return False
    client.disconnect(serial)  # adb keeps listing a phone with a lost connection as offline
    message = client.connect(serial, timeout=CONNECT_SECONDS)
    if serial not in states(client):
        raise NoDeviceError(f"cannot connect to {serial}: {message}")
    return serial not in phones


def _stable_state(client: adbutils.AdbClient, serial: str, patience: float) -> str:
    """The phone's state once its connection is established, or after `patience` seconds."""
    end = time.monotonic() + patience
    while (state := states(client).get(serial, "absent")) in _TRANSIENT_STATES and time.monotonic() < end:
        time.sleep(RETRY_SECONDS)
    return state
