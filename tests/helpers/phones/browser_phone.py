"""Shared by tests of the browser phone: whether it can run here, and taps on texts."""

import importlib.util

import pytest

from vlm_agent.devices.browser.chromium import NoBrowserError, find_chromium
from vlm_agent.episodes import Action


def _missing() -> str | None:
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    try:
        find_chromium()
    except NoBrowserError:
        return "chromium is not installed"
    return None


needs_browser = pytest.mark.skipif(_missing() is not None, reason=str(_missing()))


def texts(phone) -> list[str]:
    phone._read()  # as a screenshot does, without the picture, which takes most of the time
    return [element.text for element in phone.elements()]


def tap(phone, text) -> None:
    """Taps on the element with exactly this text, and swipes up to it first if necessary."""
    for _ in range(6):
        phone._read()
        for element in phone.elements():
            if element.text == text:
                phone.perform(Action.tap(*element.centre_yx))
                return
        phone.perform(Action.swipe((0.8, 0.5), (0.3, 0.5)))
    raise AssertionError(f"{text!r} is nowhere in {phone.activity}")


def type_into(phone, field, text) -> None:
    tap(phone, field)
    phone.perform(Action.type_text(text))
