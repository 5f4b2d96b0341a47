"""Phones that an agent can operate, and the registry of their kinds: over ADB, simulated, in a browser."""

from vlm_agent.devices.adb import ADB
from vlm_agent.devices.browser import BROWSER
from vlm_agent.devices.device import Device, DeviceAddress, DeviceKind, DeviceTask, OpenedDevice
from vlm_agent.devices.errors import DeviceError
from vlm_agent.settings import Registry

__all__ = ["DEVICES", "Device", "DeviceAddress", "DeviceKind", "DeviceTask", "OpenedDevice", "device_address"]

DEVICES: Registry[DeviceKind] = Registry(
    "vlm_agent.devices",
    {"adb": ADB, "simulated": "vlm_agent.simulator.opening:SIMULATED", "browser": BROWSER},
    instance_of=DeviceKind,
)
"""Kind → how the command line opens such a device. The kind is the part of an address before its first colon."""


def device_address(text: str) -> DeviceAddress:
    """Parses an address `KIND` or `KIND:WHICH`. Raises DeviceError with the known forms for any other text."""
    name, colon, which = text.partition(":")
    address = DEVICES[name].parse(which if colon else None) if name in DEVICES else None
    if address is None:
        forms = [form for kind in DEVICES.values() for form in kind.forms]
        raise DeviceError(f"{text!r} is not a device; use {', '.join(forms[:-1])} or {forms[-1]}")
    return address
