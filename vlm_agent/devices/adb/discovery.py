"""Finding the phone: start adb's server, choose one of its phones, and check that it is usable."""

import os
import subprocess
import time

import adbutils

from vlm_agent.devices.errors import (
    NoAdbError,
    NoDeviceError,
    OfflineError,
    SeveralDevicesError,
    UnauthorisedError,
)

CONNECT_SECONDS = 10.0
RETRY_SECONDS = 0.1

CUT = (adbutils.AdbError, OSError, EOFError, ValueError)
"""Exceptions of adbutils when its socket is closed; ValueError when it is closed within a number."""

_TRANSIENT_STATES = ("authorizing", "connecting")


def started_server(answer_seconds: float) -> adbutils.AdbClient:
    """A client of the server that `adb` itself would use (ANDROID_ADB_SERVER_PORT). Starts the server if necessary.

    Raises NoAdbError.
    """
    client = adbutils.AdbClient(socket_timeout=answer_seconds)
    try:
        client.server_version()
    except (*CUT, subprocess.SubprocessError) as error:
        raise NoAdbError(
            f"adb's server at port {client.port} does not answer and cannot be started ({reason(error)}); install "
            "Android's platform tools (Debian: apt-get install adb) and try `adb devices`"
        ) from error
    return client


def choose(client: adbutils.AdbClient, serial: str | None, patience: float) -> tuple[str, bool]:
    """The serial of the phone, and whether this call connected to it over the network.

    A `serial` of None selects ANDROID_SERIAL, or else the only connected phone. Raises a DeviceError that explains why
    the phone cannot be used.
    """
    name = os.environ.get("ANDROID_SERIAL") if serial is None else serial
    try:
        chosen = _only_one(states(client)) if name is None else name
        is_new = _connect(client, chosen)
        check_state(chosen, _settled_state(client, chosen, patience))
        _check_shell(client, chosen)
    except adbutils.AdbError as error:
        raise NoDeviceError(f"{name or 'the phone'} cannot be connected to; adb says: {error}") from error
    return chosen, is_new


def states(client: adbutils.AdbClient) -> dict[str, str]:
    """Serial → state, as `adb devices` prints them."""
    return {info.serial: info.state for info in client.list()}


def check_state(serial: str, state: str) -> None:
    """Raises UnauthorisedError or OfflineError for a state in which the phone cannot be used."""
    if state == "unauthorized":
        raise UnauthorisedError(
            f"{serial} has not allowed this computer to debug it; unlock the phone and confirm the question on its "
            "screen (if no question appears, unplug the phone and plug it in again)"
        )
    if state == "no":
        raise UnauthorisedError(
            f"this user may not open {serial} over USB (`adb devices` says: no permissions); install Debian's "
            "android-sdk-platform-tools-common, which has the udev rules, and plug the phone in again"
        )
    if state != "device":
        raise OfflineError(
            f"{serial} is connected and does not answer (`adb devices` says: {state}); unplug it and plug it in again, "
            "or turn its USB debugging off and on"
        )


def reason(error: Exception) -> str:
    """The message of an exception, or its type if it has none."""
    return str(error) or type(error).__name__


def _only_one(there: dict[str, str]) -> str:
    if not there:
        raise NoDeviceError(
            "no phone is connected; plug one in and turn on its USB debugging (Settings, developer options), or give "
            "one on the network as HOST:PORT"
        )
    if len(there) > 1:
        raise SeveralDevicesError(f"{len(there)} phones are connected; choose one of {', '.join(there)}")
    return next(iter(there))


def _connect(client: adbutils.AdbClient, serial: str) -> bool:
    """Connects to a phone on the network; whether it was not connected before."""
    there = states(client)
    if ":" not in serial:
        if serial not in there:
            others = f"connected: {', '.join(there)}" if there else "none is connected"
            raise NoDeviceError(f"phone {serial} is not connected; {others} (see `adb devices`)")
        return False
    if there.get(serial) == "device":
        return False
    client.disconnect(serial)  # a phone whose connection was lost stays listed as offline
    message = client.connect(serial, timeout=CONNECT_SECONDS)
    if serial not in states(client):
        raise NoDeviceError(f"cannot connect to {serial}: {message}")
    return serial not in there


def _settled_state(client: adbutils.AdbClient, serial: str, patience: float) -> str:
    """The phone's state when its connection is established, or after `patience` seconds."""
    end = time.monotonic() + patience
    while (state := states(client).get(serial, "absent")) in _TRANSIENT_STATES and time.monotonic() < end:
        time.sleep(RETRY_SECONDS)
    return state


def _check_shell(client: adbutils.AdbClient, serial: str) -> None:
    features = adbutils.AdbDevice(client, serial=serial).get_features().split(",")
    if "shell_v2" not in features:
        # The older protocol has no exit status and cannot distinguish a cut connection from the end of a command.
        raise OfflineError(f"{serial} runs an Android before 7, whose adb has no shell_v2; it is not supported")
