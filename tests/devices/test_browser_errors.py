"""What goes wrong with the browser phone, and what is said then; and `vlm-agent act`'s way to one."""

import sys
from types import SimpleNamespace

import pytest
from browser_phone import needs_browser

from vlm_agent.cli.opened_phone import opened_phone
from vlm_agent.devices.browser import BrowserPhone
from vlm_agent.devices.browser_chromium import NoBrowserError
from vlm_agent.devices.browser_tasks import browser_task
from vlm_agent.devices.errors import DeviceError, DeviceLostError
from vlm_agent.episodes import Action


def test_without_playwright_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(NoBrowserError, match=r"pip install 'vlm-agent\[browser\]'"):
        BrowserPhone()


@needs_browser
def test_without_chromium_it_says_where_it_looked(monkeypatch, tmp_path):
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "nothing"))
    with pytest.raises(NoBrowserError, match=r"\$CHROMIUM is '.*nothing', which is no program"):
        BrowserPhone()
    monkeypatch.delenv("CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBrowserError, match="apt-get install chromium"):
        BrowserPhone()


@needs_browser
def test_a_program_that_is_no_chromium_does_not_start(monkeypatch):
    monkeypatch.setenv("CHROMIUM", "true")
    with pytest.raises(NoBrowserError, match="true does not start"):
        BrowserPhone()


@needs_browser
def test_act_opens_a_task_and_a_lost_browser_or_a_fault_of_the_pages_is_told():
    options = SimpleNamespace(device={"kind": "browser", "site": "settings", "number": "4"}, goal=None)
    task = browser_task("settings", 4)
    with opened_phone(options) as opened:
        assert (opened.goal, opened.task, opened.name) == (task.goal, task, "browser_1082x2402")
        assert opened.heading("an agent").subset == "general"
        assert opened.heading("an agent").task is None, "only a simulated phone's task can be replayed"
        phone = opened.device
        assert "Display" in [element.text for element in phone.elements()]
        assert phone.activity == "settings/overview"

        phone._page.evaluate("setTimeout(() => { throw new Error('oh') })")
        with pytest.raises(DeviceError, match="a script of the pages has failed: oh"):
            phone.perform(Action.press("home"))

        with pytest.raises(ValueError, match="no site 'bank'"):
            phone.reset("bank")

        phone._browser.close()
        with pytest.raises(DeviceLostError, match="closed"):
            phone.screenshot()
        with pytest.raises(DeviceLostError):
            phone.perform(Action.tap(0.5, 0.5))
