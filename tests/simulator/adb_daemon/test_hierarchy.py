"""`uiautomator dump` states what the simulated phone knows about each element, with the attributes of Android."""

from xml.etree import ElementTree

import numpy as np
import pytest

from vlm_agent.devices.adb.elements import read_elements, read_field
from vlm_agent.episodes import Action, UiElement
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset
from vlm_agent.simulator.adb_daemon.shell.commands import shell_of

ORDER = (
    *("index", "text", "resource-id", "class", "package", "content-desc", "checkable", "checked", "clickable"),
    *("enabled", "focusable", "focused", "scrollable", "long-clickable", "password", "selected", "bounds", "hint"),
)
"""The order of `AccessibilityNodeInfoDumper.dumpNodeRec` in Android; later versions have `hint` after the bounds."""


def dump(handset: Handset) -> str:
    out = shell_of(handset).run("uiautomator dump /dev/tty").out.decode()
    return out.removesuffix("UI hierchary dumped to: /dev/tty\n")


def nodes(handset: Handset) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(dump(handset)))  # noqa: S314 (our own XML)


def node(handset: Handset, **attributes: str) -> ElementTree.Element:
    """The only node with these attributes."""
    (found,) = [one for one in nodes(handset) if all(one.get(name) == value for name, value in attributes.items())]
    return found


def middle(one: ElementTree.Element, handset: Handset) -> tuple[float, float]:
    left, top, right, bottom = (int(side) for side in one.get("bounds")[1:-1].replace("][", ",").split(","))
    height, width = handset.phone.size
    return (top + bottom) / 2 / height, (left + right) / 2 / width


def tap(handset: Handset, **attributes: str) -> None:
    handset.perform(Action.tap(*middle(node(handset, **attributes), handset)))


@pytest.fixture
def handset() -> Handset:
    return Handset(SimulatedPhone(7, (800, 400)))


@pytest.mark.parametrize("app", ["Launcher", "Settings", "Clock", "Store", "Mail", "Shop"])
def test_every_node_has_the_attributes_of_android_in_its_order(handset, app):
    handset.phone.open(app)
    found = nodes(handset)
    assert {tuple(one.keys()) for one in found} == {ORDER}
    assert [one.get("index") for one in found] == [str(number) for number in range(len(found))]
    assert found[0].get("class") == "android.widget.FrameLayout"
    assert found[0].get("bounds") == "[0,0][400,800]"
    flags = {one.get(name) for one in found for name in ORDER[6:16]}
    assert flags <= {"true", "false"}


def test_the_elements_that_our_own_client_reads_are_those_of_the_phone(handset):
    phone = handset.phone
    for app in ("Settings", "Clock", "Store"):
        phone.open(app)
        read = read_elements(dump(handset), phone.size)
        assert [one.text for one in read] == [words(one) for one in phone.elements()]
        np.testing.assert_allclose([one.box for one in read], [one.box for one in phone.elements()], atol=0.003)


def words(element: UiElement) -> str:
    return element.text if element.type == "TEXT" else element.type.removeprefix("ICON_").lower().replace("_", " ")


def test_a_tap_on_a_clickable_node_has_an_effect_and_on_another_has_none(handset):
    phone = handset.phone
    for app in ("Settings", "Store", "Clock"):
        phone.open(app)
        for one in nodes(handset)[1:]:
            target = phone.target_at(*middle(one, handset))
            has_effect = target is not None and target.on_tap is not None
            assert one.get("clickable") == str(has_effect).lower(), ElementTree.tostring(one)
        assert {one.get("clickable") for one in nodes(handset)} == {"true", "false"}


def test_a_switch_is_checkable_and_its_state_changes_with_a_tap(handset):
    handset.phone.shade = False
    handset.phone.open("Settings")
    before = [one for one in nodes(handset) if one.get("checkable") == "true"]
    while not before:
        handset.perform(Action.tap(*middle(next_row(handset), handset)))
        before = [one for one in nodes(handset) if one.get("checkable") == "true"]
    assert {one.get("class") for one in before} == {"android.widget.Switch"}
    handset.perform(Action.tap(*middle(before[0], handset)))
    after = [one for one in nodes(handset) if one.get("checkable") == "true"]
    assert after[0].get("checked") != before[0].get("checked")
    assert [one.get("checked") for one in after[1:]] == [one.get("checked") for one in before[1:]]


def next_row(handset: Handset) -> ElementTree.Element:
    rows = [one for one in nodes(handset) if one.get("clickable") == "true" and one.get("text")]
    return rows[0]


def test_a_field_is_focusable_and_says_whether_it_has_the_focus_and_only_a_hint(handset):
    handset.phone.open("Store")
    field = node(handset, text="Search apps")
    assert field.get("clickable") == "true"
    tap(handset, text="Search apps")
    field = node(handset, focused="true")
    assert (field.get("class"), field.get("focusable"), field.get("hint")) == (
        "android.widget.EditText",
        "true",
        field.get("text"),
    )
    assert read_field(dump(handset))[1] == ""
    handset.perform(Action.type_text("clock & <co>"))
    field = node(handset, focused="true")
    assert (field.get("text"), field.get("hint")) == ("clock & <co>", "")
    assert read_field(dump(handset))[1] == "clock & <co>"


def test_the_active_tab_is_selected(handset):
    handset.phone.open("Clock")
    active = [tab.label for tab in handset.phone.tabs() if tab.active]
    assert [one.get("text") for one in nodes(handset) if one.get("selected") == "true"] == active
    assert len(active) == 1


def test_packages_are_those_of_the_app_and_of_the_system_bars(handset):
    handset.phone.open("Settings")
    packages = {one.get("package") for one in nodes(handset)}
    assert packages == {"org.settings", "com.android.systemui"}
    assert node(handset, text="Settings").get("package") == "org.settings"
    assert node(handset, **{"class": "android.widget.FrameLayout"}).get("package") == "org.settings"
    handset.phone.shade = True
    handset.phone.changed()
    assert {one.get("package") for one in nodes(handset)[1:]} == {"com.android.systemui"}


def test_a_page_that_is_longer_than_the_screen_is_scrollable(handset):
    handset.phone.open("Settings")
    handset.phone.size = (300, 400)
    handset.phone.changed()
    assert nodes(handset)[0].get("scrollable") == "true"
    before = dump(handset)
    handset.perform(Action.swipe((0.8, 0.5), (0.2, 0.5)))
    assert dump(handset) != before
