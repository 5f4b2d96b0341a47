"""Phones over the Android Debug Bridge (ADB); on the command line `adb`, `adb:SERIAL`."""

from collections.abc import Iterator
from contextlib import contextmanager

from vlm_agent.devices.device import DeviceAddress, DeviceKind, OpenedDevice


@contextmanager
def _open(serial: str | None) -> Iterator[OpenedDevice]:
    from vlm_agent.devices.adb.phone import AdbPhone

    with AdbPhone(serial) as phone:
        yield OpenedDevice(phone, phone.serial, packages=phone.packages, launcher=phone.launcher())


def _parse(serial: str | None) -> DeviceAddress | None:
    if serial is not None and (not serial or not serial.isprintable() or serial.strip() != serial):
        return None
    return DeviceAddress(lambda: _open(serial))


ADB = DeviceKind(
    ("adb (the only connected phone)", "adb:SERIAL", "adb:HOST:PORT"),
    _parse,
    "vlm_agent.devices.acting.demonstrating.touched:record",
)
