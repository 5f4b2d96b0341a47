"""Elements of a phone's screen over ADB."""

import threading

import pytest

from vlm_agent.devices.adb import link
from vlm_agent.devices.adb.elements import COMMANDS, LONGEST_TEXT, MAX_ELEMENTS, read_elements
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.simulator.adb_daemon import files
from vlm_agent.simulator.adb_daemon.shell.session import output

SIZE = (2000, 1000)


def node(text="Buy", bounds="[100,200][300,400]", more=""):
    return f'<node index="0" text="{text}" class="a.B" content-desc="" bounds="{bounds}" {more}/>'


def test_visible_texts_and_descriptions_are_elements():
    dump = (
        f'<hierarchy rotation="0">{node()}{node("", more="")}<node text="" content-desc="Cart" bounds="[0,0][50,50]">'
    )
    found = read_elements(dump + node("A &lt; &quot;B&quot; &amp; C") + "</node></hierarchy>", SIZE)
    assert [element.text for element in found] == ["Buy", "Cart", 'A < "B" & C']
    assert found[0].box == (0.1, 0.1, 0.1, 0.2)
    assert found[0].type == "TEXT"


@pytest.mark.parametrize("bounds", ["", "[1,2]", "[300,400][100,200]", "[0,0][0,0]", "[1200,0][1300,9]", "[a,b][c,d]"])
def test_nodes_off_the_screen_are_no_elements(bounds):
    assert read_elements(node(bounds=bounds), SIZE) == ()


def test_partly_visible_elements_are_cut_at_the_edge():
    (element,) = read_elements(node(bounds="[-50,1900][50,2100]"), SIZE)
    assert element.box == pytest.approx((0.95, 0.0, 0.05, 0.05))


@pytest.mark.parametrize(
    "dump", ["", "ERROR: could not get idle state.", "<<<node text=", "\x00\xff", "<!ENTITY a 'b'>"]
)
def test_no_output_of_a_phone_raises(dump):
    assert read_elements(dump, SIZE) == ()


def test_apps_cannot_fill_the_memory():
    bomb = '<!DOCTYPE x [<!ENTITY a "bbbbbbbbbb"><!ENTITY c "&a;&a;&a;">]>'
    found = read_elements(bomb + node("x" * 100_000) + node("&c;") * (MAX_ELEMENTS + 5), SIZE)
    assert len(found[0].text) == LONGEST_TEXT
    assert found[1].text == "&c;"
    assert len(found) == MAX_ELEMENTS


def test_elements_over_adb_have_the_texts_of_the_phone(one_adb, served):
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        found = phone.elements()
    height, width = served.handset.phone.size
    own = [element for element in served.handset.phone.elements() if element.type == "TEXT"]
    texts = [element for element in found if element.text in {one.text for one in own}]
    assert [element.text for element in texts] == [element.text for element in own]
    for over_adb, element in zip(texts, own, strict=True):
        off = (abs(a - b) for a, b in zip(over_adb.box, element.box, strict=True))
        assert all(part <= 1 / side for part, side in zip(off, (height, width, height, width), strict=True))
    assert list(served.handset.files) == []


def test_a_failed_dump_is_none(one_adb, served, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 0)  # no space for the dump
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        assert phone.elements() is None


def test_a_dump_that_fails_silently_does_not_show_an_earlier_screen(one_adb, served):
    (_, (_, _, path), *_) = COMMANDS
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        served.handset.files.write(path, f"<hierarchy>{node()}</hierarchy>".encode())
        served._shell._commands["uiautomator"] = lambda _: output("ERROR: could not get idle state.")
        assert phone.elements() is None


def test_a_dump_that_hangs_is_none_and_the_phone_is_not_lost(one_adb, served, monkeypatch):
    monkeypatch.setattr(link, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(link, "CHARACTERS_PER_SECOND", 1e9)
    end = threading.Event()
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        served._shell._commands["uiautomator"] = lambda _: end.wait(10) and output("")
        assert phone.elements() is None
        end.set()
        assert phone.screenshot().shape == (448, 208, 3)
