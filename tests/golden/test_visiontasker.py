"""What is read here beside the published output of VisionTasker."""

import json

import pytest
import visiontasker as golden

from vlm_agent.screens.seen import Block, Part, Text, Understood


def node(number, text, box, kind="Text", paired=""):
    top, left, bottom, right = box
    return {
        "id": f"c-{number}",
        "class": "Text" if kind == "Text" else "Compo",
        "sub_class": kind,
        "text_content": text,
        "pair_to": paired,
        "location": {"left": left, "right": right, "top": top, "bottom": bottom},
    }


def block(number, children, box):
    location = dict(zip(("top", "left", "bottom", "right"), box, strict=True))
    return {"id": f"b-{number}", "class": "Block", "alignment": "v", "children": children, "location": location}


OUTPUT = [
    "alignment: v",
    block(
        0,
        [
            node(0, "title: Network", (100, 100, 150, 300)),
            block(1, [node(1, "Wi-Fi", (200, 100, 240, 200), "switch", "7")], (200, 100, 240, 200)),
            node(2, "maybe、a key", (200, 800, 240, 900), "buttonicon"),
        ],
        (100, 100, 240, 900),
    ),
    block(2, [node(3, "two words", (500, 100, 700, 900), "image")], (500, 100, 700, 900)),
]
READ = (Text((0.1, 0.1, 0.05, 0.2), "Network"), Text((0.2, 0.1, 0.04, 0.1), "WiFi"), Text((0.6, 0.2, 0.04, 0.1), "two"))
PARTS = tuple(Part(number, "text", text.box, text.text) for number, text in enumerate(READ))
UNDERSTOOD = Understood(
    (1000, 1000), READ, (), PARTS, (Block((0.1, 0.1, 0.14, 0.8), (0, 1), "Network"), Block((0.5, 0, 0.5, 1), (2,)))
)


@pytest.fixture
def output(tmp_path):
    path = tmp_path / "output.json"
    path.write_text(json.dumps(OUTPUT))
    return path


def test_figures_are_counted_by_hand(output):
    figures = golden.compare(UNDERSTOOD, *golden.read_output(output))
    assert figures["texts"] == {"published": 2, "read": 2, "not_read": []}
    assert figures["in_images"] == {"published": 2, "read": 1, "not_read": ["c-3"]}
    assert figures["boxes"]["texts"] == {"published": 1, "iou_0.5": 1, "centre": 1}
    assert figures["boxes"]["widgets"] == {"published": 3, "iou_0.5": 1, "centre": 1}
    assert [(one["iou"], one["blocks_here"], one["title_here"]) for one in figures["blocks"]] == [
        (1.0, 1, "Network"),
        (0.32, 1, ""),
    ]


def test_a_text_elsewhere_or_another_text_is_not_read(output):
    elements, blocks = golden.read_output(output)
    moved = Understood((1000, 1000), (Text((0.8, 0.1, 0.05, 0.2), "Network"), READ[2]), (), PARTS, ())
    assert golden.compare(moved, elements, blocks)["texts"]["not_read"] == ["c-0", "c-1"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '["alignment: v"]', '[{"class": "Block", "id": "b"}]', "[1, 2"])
def test_a_file_of_another_form_is_refused(tmp_path, capsys, content):
    path = tmp_path / "output.json"
    path.write_text(content)
    assert golden.main([str(tmp_path / "none.png"), str(path)]) == 2
    assert str(path) in capsys.readouterr().out


@pytest.mark.ocr
def test_the_published_example_is_read_as_well_and_without_its_errors(shared, capsys):
    folder = shared / "data/visiontasker"
    assert golden.main([str(folder / "taobao.png"), str(folder / "taobao.json"), "--widgets", "edges"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["texts"]["published"] == 34 and figures["texts"]["read"] >= golden.ENOUGH
    assert figures["boxes"]["texts"]["centre"] >= 10
    here = {name: (one["here"] or {}).get("kind") for name, one in figures["known"].items()}
    assert set(here) == set(golden.KNOWN)
    assert here["c-29"] != "switch" and here["c-15"] != "edit_text"
    assert figures["texts"]["not_read"][0] == "c-47", "the published text is misread"
