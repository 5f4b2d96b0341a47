"""Clients of ADB that others wrote operate the simulated phone through their own functions."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import adbutils
import numpy as np
import pytest
from adb_shell.adb_device import AdbDeviceTcp
from helpers.phones.adb_servers import AdbServer
from PIL import Image
from ppadb.client import Client as PpadbClient

from vlm_agent.episodes import Action
from vlm_agent.simulator.adb_daemon import PhoneServer


@dataclass
class Client:
    """What a client calls each of these. `screenshot` returns a PNG or a picture; `start` takes a package."""

    shell: Callable[[str], str]
    screenshot: Callable[[], bytes | Image.Image]
    tap: Callable[[int, int], object]
    type: Callable[[str], object]
    push: Callable[[str, str], object]
    pull: Callable[[str, str], object]
    start: Callable[[str], object]
    close: Callable[[], object]


def of_adbutils(adb: AdbServer, served: PhoneServer) -> Client:
    api = adbutils.AdbClient(port=adb.port)
    api.connect(served.serial)
    device = api.device(served.serial)
    return Client(
        device.shell,
        device.screenshot,
        device.click,
        device.send_keys,
        device.sync.push,
        device.sync.pull,
        lambda package: device.app_start(package, ".Home"),
        lambda: api.disconnect(served.serial),
    )


def of_ppadb(adb: AdbServer, served: PhoneServer) -> Client:
    api = PpadbClient(port=adb.port)
    assert api.remote_connect("127.0.0.1", served.port)
    device = api.device(served.serial)
    return Client(
        device.shell,
        device.screencap,
        device.input_tap,
        device.input_text,
        device.push,
        device.pull,
        lambda package: device.shell(f"am start -n {package}/.Home"),
        lambda: api.remote_disconnect("127.0.0.1", served.port),
    )


def of_adb_shell(adb: AdbServer, served: PhoneServer) -> Client:
    """Over TCP, without a server of adb."""
    device = AdbDeviceTcp("127.0.0.1", served.port, default_transport_timeout_s=30)
    assert device.connect()
    return Client(
        device.shell,
        lambda: device.exec_out("screencap -p", decode=False),
        lambda x, y: device.shell(f"input tap {x} {y}"),
        lambda text: device.shell(f"input text '{text}'"),
        device.push,
        lambda path, to: device.pull(path, to),
        lambda package: device.shell(f"am start -n {package}/.Home"),
        device.close,
    )


@pytest.fixture(params=[of_adbutils, of_ppadb, of_adb_shell])
def client(request, one_adb, served):
    opened = request.param(one_adb, served)
    yield opened
    opened.close()


def test_a_shell_line_returns_its_output(client):
    assert client.shell("echo hi; getprop ro.product.model").split("\n")[:2] == ["hi", "Simulated Phone"]


@pytest.mark.parametrize("client", [of_adbutils, of_adb_shell], indirect=True)
def test_a_screenshot_has_the_pixels_of_the_phone(client, served):
    picture = client.screenshot()
    picture = picture if isinstance(picture, Image.Image) else Image.open(io.BytesIO(picture))
    np.testing.assert_array_equal(np.array(picture.convert("RGB")), served.handset.phone.screenshot())


def test_taps_and_text_are_performed(client, served):
    height, width = served.handset.phone.size
    client.tap(30, 40)
    client.type("abc")
    assert list(served.handset.actions) == [Action.tap(40.5 / height, 30.5 / width), Action.type_text("abc")]


def test_pushed_files_are_pulled_unchanged(client, tmp_path):
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(np.random.default_rng(0).bytes(300_001))
    client.push(str(there), "/data/local/tmp/file")
    client.pull("/data/local/tmp/file", str(back))
    assert back.read_bytes() == there.read_bytes()


def test_an_app_starts(client, served):
    client.start("org.shop")
    assert served.handset.phone.front == "Shop"
