"""studies/screens/icons.py: its table of descriptions, its counts, and that it resumes."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

from studies.screens import icons
from vlm_agent.screens.icons import MEANINGS
from vlm_agent.screens.seen import Meaning

CROP = np.zeros((4, 4, 3), np.uint8)


class Guesses:
    """A reader whose guesses are these for every crop."""

    def __init__(self, *names):
        self.names = names

    def read(self, crops):
        return [tuple(Meaning(name, 0.1) for name in self.names) for _ in crops]


def test_descriptions_permit_meanings_that_exist():
    assert {name for permitted in icons.DESCRIPTIONS.values() for name in permitted} <= set(MEANINGS)


def test_first_and_three_count_the_guesses_and_wrong_names_the_first():
    cases = [("a", CROP, ("back", "previous")), ("b", CROP, ("menu",)), ("c", CROP, ("send",)), ("d", CROP, ("add",))]
    result = icons.score(Guesses("previous", "menu", "send", "add"), cases)
    assert (result["icons"], result["first"], result["three"]) == (4, 1, 3)
    assert result["wrong"] == {"menu": ["b → previous"], "send": ["c → previous"], "add": ["d → previous"]}
    assert icons.score(Guesses(), cases)["wrong"]["add"] == ["d → none"]


def element(description, text="", box=(0.0, 0.0, 0.5, 0.25)):
    return {"content_desc": description, "text": text, "bounds_ltrb": box}


def test_real_screens_are_judged_by_descriptions_that_name_an_icon(tmp_path):
    elements = [
        element("Navigate up"),
        element("Game Install"),
        element("Cancel"),
        element("Send", "Send"),
        element(None),
    ]
    (tmp_path / "one.json").write_text(json.dumps({"elements": elements}))
    Image.new("RGB", (40, 80)).save(tmp_path / "one.jpg")
    cases = list(icons.real(tmp_path))
    assert [permitted for _, _, permitted in cases] == [("back", "previous"), ("download",)]
    assert cases[0][1].shape == (20, 20, 3)
    assert icons.described(tmp_path) == 3


def test_the_command_resumes_and_refuses_another_reader(tmp_path, monkeypatch, capsys):
    words = ["icons.py", "--reader", "none", "--quick", "--output", str(tmp_path / "out"), "--screens", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(icons, "QUICK", 300)
    icons.main()
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert first["phosphor"]["plain"]["first"] == 0 < first["phosphor"]["plain"]["icons"]
    monkeypatch.setattr(icons, "of_font", None)
    icons.main()
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == first
    words[2] = "phone_icons_tiny"
    with pytest.raises(Exception, match='reader was "none"'):
        icons.main()
