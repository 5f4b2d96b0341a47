"""A phone in Chromium, driven by Playwright: a shop and settings.

On the command line `browser`, `browser:SITE`, and `browser:SITE/SEED`, which is set up for a task.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from vlm_agent.devices.browser.tasks import SITES, browser_task, opened
from vlm_agent.devices.device import DeviceAddress, DeviceKind, OpenedDevice

_ADDRESS = re.compile(rf"(?P<site>{'|'.join(SITES)})(?:/(?P<seed>[0-9]+))?")


@contextmanager
def _open(site: str | None, seed: int | None) -> Iterator[OpenedDevice]:
    from vlm_agent.devices.browser.phone import BrowserPhone

    task = None if site is None or seed is None else browser_task(site, seed)
    with BrowserPhone(site, 0 if task is None else task.seed) as phone:
        yield opened(phone, task)


def _parse(which: str | None) -> DeviceAddress | None:
    if which is None:
        return DeviceAddress(lambda: _open(None, None))
    match = _ADDRESS.fullmatch(which)
    if match is None:
        return None
    seed = None if match["seed"] is None else int(match["seed"])
    return DeviceAddress(lambda: _open(match["site"], seed), has_task=seed is not None)


BROWSER = DeviceKind(("browser", *(f"browser:{site}" for site in SITES), "browser:shop/7 (a task)"), _parse)
