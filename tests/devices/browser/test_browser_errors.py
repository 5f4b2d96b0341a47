"""Errors of the browser phone and their messages, and opening it by its address."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from helpers.phones.browser_phone import needs_browser

from vlm_agent.devices import device_address
from vlm_agent.devices.browser.chromium import NoBrowserError
from vlm_agent.devices.browser.phone import BrowserPhone
from vlm_agent.devices.browser.tasks import browser_task
from vlm_agent.devices.errors import DeviceError, DeviceLostError
from vlm_agent.episodes import Action
from vlm_agent.errors import UserError


def test_the_error_without_playwright_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(NoBrowserError, match=r"pip install .*\[browser\]'"):
        BrowserPhone()


@needs_browser
def test_the_error_without_chromium_names_where_it_was_searched(monkeypatch, tmp_path):
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "nothing"))
    with pytest.raises(NoBrowserError, match=r"\$CHROMIUM is '.*nothing', which is not an executable"):
        BrowserPhone()
    monkeypatch.delenv("CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBrowserError, match="apt-get install chromium"):
        BrowserPhone()


@needs_browser
def test_a_program_other_than_chromium_does_not_start(monkeypatch):
    monkeypatch.setenv("CHROMIUM", "true")
    with pytest.raises(NoBrowserError, match="true does not start"):
        BrowserPhone()


@needs_browser
def test_a_driver_of_playwright_that_was_killed_is_a_lost_browser_also_when_the_phone_is_closed():
    with pytest.raises(DeviceLostError, match="connection closed"), BrowserPhone() as phone:
        children = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split()
        (driver,) = (int(one) for one in children if b"run-driver" in Path(f"/proc/{one}/cmdline").read_bytes())
        os.kill(driver, signal.SIGKILL)
        phone.screenshot()


@needs_browser
def test_an_address_opens_a_task_and_a_lost_browser_or_a_script_error_is_reported():
    task = browser_task("settings", 4)
    address = device_address("browser:settings/4")
    assert address.has_task
    with address.open() as opened:
        assert (opened.task, opened.name) == (task, "browser_1082x2402")
        assert opened.task.subset == "general"
        assert opened.replay_address is None, "only a simulated phone's task can be replayed"
        phone = opened.device
        assert "Display" in [element.text for element in phone.elements()]
        assert phone.activity == "settings/overview"

        phone._page.evaluate("setTimeout(() => { throw new Error('oh') })")
        with pytest.raises(DeviceError, match="a script of the pages failed: oh"):
            phone.perform(Action.press("home"))

        with pytest.raises(UserError, match="unknown site 'bank'"):
            phone.reset("bank")

        phone._browser.close()
        with pytest.raises(DeviceLostError, match="closed"):
            phone.screenshot()
        with pytest.raises(DeviceLostError):
            phone.perform(Action.tap(0.5, 0.5))
