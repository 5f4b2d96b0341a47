"""What a phone says is on its screen, over ADB."""

import pytest

from vlm_agent.devices.adb import AdbPhone
from vlm_agent.devices.adb_daemon import files
from vlm_agent.devices.adb_elements import LONGEST_TEXT, MOST_ELEMENTS, read_elements

SIZE = (2000, 1000)


def node(text="Buy", bounds="[100,200][300,400]", more=""):
    return f'<node index="0" text="{text}" class="a.B" content-desc="" bounds="{bounds}" {more}/>'


def test_texts_and_descriptions_are_elements_where_they_show():
    dump = (
        f'<hierarchy rotation="0">{node()}{node("", more="")}<node text="" content-desc="Cart" bounds="[0,0][50,50]">'
    )
    found = read_elements(dump + node("A &lt; &quot;B&quot; &amp; C") + "</node></hierarchy>", SIZE)
    assert [element.text for element in found] == ["Buy", "Cart", 'A < "B" & C']
    assert found[0].box == (0.1, 0.1, 0.1, 0.2)
    assert found[0].type == "TEXT"


@pytest.mark.parametrize("bounds", ["", "[1,2]", "[300,400][100,200]", "[0,0][0,0]", "[1200,0][1300,9]", "[a,b][c,d]"])
def test_what_is_not_on_the_screen_is_no_element(bounds):
    assert read_elements(node(bounds=bounds), SIZE) == ()


def test_what_is_partly_on_the_screen_is_cut_at_its_edge():
    (element,) = read_elements(node(bounds="[-50,1900][50,2100]"), SIZE)
    assert element.box == pytest.approx((0.95, 0.0, 0.05, 0.05))


@pytest.mark.parametrize(
    "dump", ["", "ERROR: could not get idle state.", "<<<node text=", "\x00\xff", "<!ENTITY a 'b'>"]
)
def test_nothing_that_a_phone_prints_raises(dump):
    assert read_elements(dump, SIZE) == ()


def test_apps_cannot_fill_the_memory():
    bomb = '<!DOCTYPE x [<!ENTITY a "bbbbbbbbbb"><!ENTITY c "&a;&a;&a;">]>'
    found = read_elements(bomb + node("x" * 100_000) + node("&c;") * (MOST_ELEMENTS + 5), SIZE)
    assert len(found[0].text) == LONGEST_TEXT
    assert found[1].text == "&c;"
    assert len(found) == MOST_ELEMENTS


def test_over_adb_the_screen_has_the_phones_own_texts(one_adb, served):
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        found = phone.elements()
    height, width = served.handset.phone.size
    own = [element for element in served.handset.phone.elements() if element.type == "TEXT"]
    texts = [element for element in found if element.text in {one.text for one in own}]
    assert [element.text for element in texts] == [element.text for element in own]
    for told, element in zip(texts, own, strict=True):
        off = (abs(a - b) for a, b in zip(told.box, element.box, strict=True))
        assert all(part <= 1 / side for part, side in zip(off, (height, width, height, width), strict=True))
    assert list(served.handset.files) == []


def test_a_phone_that_cannot_tell_says_none(one_adb, served, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 0)  # nowhere to put what it would tell
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        assert phone.elements() is None
