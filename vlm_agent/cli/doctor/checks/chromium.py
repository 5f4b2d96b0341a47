"""Chromium under Playwright: renders a page and compares a pixel of it."""

import io

from vlm_agent.cli.doctor.check import AbsentError, BrokenError, Check, require_package
from vlm_agent.files.installation import install_line

_COLOUR = (18, 52, 86)


def _chromium() -> str:
    require_package("playwright")
    from PIL import Image

    from vlm_agent.devices.browser.chromium import NoBrowserError, chromium, find_chromium

    try:
        program = find_chromium()
    except NoBrowserError as error:
        raise AbsentError(str(error), "apt-get install chromium, or CHROMIUM=/path/to/chrome") from error
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 64, "height": 64})
        page.set_content(f"<body style='background: rgb{_COLOUR}'>")
        with Image.open(io.BytesIO(page.screenshot())) as picture:
            pixel = picture.convert("RGB").getpixel((32, 32))
        if pixel != _COLOUR:
            raise BrokenError(f"{program} renders a page of colour {_COLOUR} as {pixel}")
        return f"Chromium {browser.version} ({program})"


CHROMIUM = Check(
    _chromium,
    "renders a page and compares a pixel",
    ("act --device browser:…",),
    f"{install_line('browser')} and apt-get install chromium; `chromium --version` must work",
)
