"""`onnx:FILE`: every layout becomes widgets on the screen, and what is wrong with a file is one line that names it."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from vlm_agent.errors import CheckpointError, UserError
from vlm_agent.screens.widgets import read_widgets

SCREEN = np.zeros((200, 100, 3), np.uint8)
SIDE = 64
"""The input is 64 x 64: the screen becomes 64 x 32, with 16 pixels of padding on its left."""

WANTED = [("button", (0.25, 0.5, 0.25, 0.25)), ("check_box", (0.75, 0.25, 0.125, 0.25))]
"""In pixels of the input, (x0, y0, x1, y1): (32, 16, 40, 32) and (24, 48, 32, 56)."""

YOLO8 = np.array(
    [[36, 24, 8, 16, 0.9, 0.1], [28, 52, 8, 8, 0.2, 0.8], [36, 25, 8, 16, 0.6, 0.1], [9, 9, 4, 4, 0.1, 0]]
).T
YOLO5 = np.array([[36, 24, 8, 16, 0.9, 1, 0.1], [28, 52, 8, 8, 0.8, 0.2, 1], [9, 9, 4, 4, 0.1, 1, 0]])
BOXES = np.array([[32, 16, 40, 32, 0.9, 0], [24, 48, 32, 56, 0.8, 1], [0, 0, 0, 0, 0, 0]])


def write(
    path: Path,
    output: np.ndarray,
    names: str | None = "{0: 'Button', 1: 'Check-Box'}",
    shape: tuple = (1, 3, SIDE, SIDE),
    kind: int = TensorProto.FLOAT,
    declared: tuple | None = None,
) -> str:
    """A file whose output is `output` plus 0 times its input; returns the name of the detector."""
    constant = numpy_helper.from_array(output[None].astype(np.float32), "constant")
    nodes = [
        helper.make_node("Cast", ["images"], ["values"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["values"], ["most"], keepdims=0),
        helper.make_node("Sub", ["most", "most"], ["zero"]),
        helper.make_node("Add", ["constant", "zero"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("images", kind, shape)],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, declared or (1, *output.shape))],
        [constant],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if names is not None:
        helper.set_model_props(model, {"names": names})
    onnx.save(model, path)
    return f"onnx:{path}"


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("output", [YOLO8, YOLO5, BOXES], ids=["yolo8", "yolo5", "boxes"])
def test_every_layout_is_the_same_widgets_in_fractions_of_the_screen(tmp_path, output, kind):
    widgets = read_widgets(write(tmp_path / "a.onnx", output, kind=kind)).detect(SCREEN)
    assert [(widget.kind, widget.box) for widget in widgets] == [(name, pytest.approx(box)) for name, box in WANTED]
    assert [widget.score for widget in widgets] == pytest.approx([0.9, 0.8])
    assert [widget.on for widget in widgets] == [None, None]


def test_a_free_input_size_is_640(tmp_path):
    free = write(tmp_path / "a.onnx", scaled(YOLO8), shape=("n", 3, "h", "w"))
    assert [widget.box for widget in read_widgets(free).detect(SCREEN)] == [pytest.approx(box) for _, box in WANTED]


def scaled(output: np.ndarray) -> np.ndarray:
    return np.concatenate([output[:4] * 640 / SIDE, output[4:]])


def test_the_screen_is_rgb_from_0_to_1_between_bars_of_grey(tmp_path):
    from vlm_agent.screens.widgets.onnx_file import _letterboxed

    values, scale, corner = _letterboxed(np.full((20, 10, 3), (255, 0, 51), np.uint8), (40, 40))
    assert values.shape == (1, 3, 40, 40) and values.dtype == np.float32
    np.testing.assert_allclose(values[0, :, 20, 20], [1, 0, 0.2], atol=1e-6)
    np.testing.assert_allclose(values[0, :, 20, [9, 30]], 114 / 255, atol=1e-6)
    assert (scale, corner) == (2, (0, 10))


def test_a_yaml_file_beside_it_names_classes_kinds_and_layout(tmp_path):
    name = write(tmp_path / "a.onnx", BOXES, names=None)
    (tmp_path / "a.yaml").write_text("names: [Icon, Text]\nkinds: {Icon: button, Text: null}\nlayout: boxes\n")
    assert [widget.kind for widget in read_widgets(name).detect(SCREEN)] == ["button"]


@pytest.mark.parametrize(
    ("arguments", "beside", "message"),
    [
        ({"names": None}, None, r"has no names of classes in its metadata; write them to .*a\.yaml"),
        ({"names": "{0: 'Button', 1: 'Dog'}"}, None, "has a class 'Dog' that is no kind of widget"),
        ({"names": "{0: 'Button', 2: 'Switch'}"}, None, "must be numbered from 0 to 1"),
        ({"names": "{0: ["}, None, "names of classes in its metadata that cannot be read"),
        ({"names": "17"}, None, "must be a list of texts"),
        ({"names": "[Button]"}, None, "no known layout with 1 classes"),
        ({}, "layout: [yolo8]", r"layout \['yolo8'\] is unknown; choose one of yolo8, yolo5, boxes"),
        ({}, "layout: yolo9", "layout 'yolo9' is unknown; choose one of yolo8, yolo5, boxes"),
        ({}, "kinds: {Button: dog}", "kinds must map names"),
        ({}, "name: x", "unknown key name"),
        ({}, "- x", "must hold keys and values"),
        ({"names": "[" * 3000}, None, "names of classes in its metadata that cannot be read"),
        ({"names": "2026-13-01"}, None, "names of classes in its metadata that cannot be read"),
        ({}, "[" * 3000, "is not valid YAML: it is nested too deeply"),
        ({}, "names: [A\nkinds: {A: button}\n", r"is not valid YAML: line 2, column 6: expected ',' or '\]'"),
        ({}, "\x00", "is not valid YAML: unacceptable character"),
        ({"shape": (1, 3)}, None, "a detector takes one float tensor"),
        ({"shape": (4, 3, SIDE, SIDE)}, None, "a detector takes one float tensor"),
        ({"kind": TensorProto.UINT8}, None, "a detector takes one float tensor"),
    ],
)
def test_a_file_that_is_not_such_a_detector_is_refused_in_one_line(tmp_path, arguments, beside, message):
    name = write(tmp_path / "a.onnx", YOLO8, **arguments)
    if beside is not None:
        (tmp_path / "a.yaml").write_text(beside)
    with pytest.raises(CheckpointError, match=message) as error:
        read_widgets(name)
    assert "a.onnx" in str(error.value) or "a.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def changed(output: np.ndarray, row: int, column: int, value: float) -> np.ndarray:
    result = output.copy()
    result[row, column] = value
    return result


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (changed(YOLO8, 0, 1, np.nan), "boxes that are not numbers"),
        (changed(YOLO8, 2, 1, np.inf), "boxes that are not numbers"),
        (changed(YOLO8, 4, 0, 3.5), "scores outside 0 to 1; export it with the sigmoid"),
        (changed(BOXES, 1, 5, 7), "classes that are not 0 to 1"),
    ],
)
def test_output_that_is_no_detection_is_one_line_that_names_the_file(tmp_path, output, message):
    detector = read_widgets(write(tmp_path / "a.onnx", output))
    with pytest.raises(CheckpointError, match=rf"a\.onnx returned {message}"):
        detector.detect(SCREEN)


def test_output_of_another_shape_than_its_layout_is_refused(tmp_path):
    name = write(tmp_path / "a.onnx", YOLO8)
    (tmp_path / "a.yaml").write_text("layout: yolo5")
    with pytest.raises(
        CheckpointError, match=r"a\.onnx returned \(1, 6, 4\) instead of \(1, N, 5 \+ classes\).* 2 classes"
    ):
        read_widgets(name).detect(SCREEN)


def test_a_broken_file_a_missing_file_and_no_file_are_refused_in_one_line(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"not a model")
    with pytest.raises(CheckpointError, match=r"a\.onnx cannot be read as ONNX: .*\Z"):
        read_widgets(f"onnx:{tmp_path / 'a.onnx'}")
    with pytest.raises(CheckpointError, match=r"b\.onnx does not exist"):
        read_widgets(f"onnx:{tmp_path / 'b.onnx'}")
    with pytest.raises(UserError, match="needs a file: onnx:FILE"):
        read_widgets("onnx")


def test_an_empty_output_and_boxes_beside_the_screen_are_no_widgets(tmp_path):
    assert read_widgets(write(tmp_path / "a.onnx", YOLO8[:, :0], declared=(1, 6, "n"))).detect(SCREEN) == ()
    beside = np.array([[2, 10, 8, 20, 0.9, 0.0]])
    assert read_widgets(write(tmp_path / "b.onnx", beside, declared=(1, "n", 6))).detect(SCREEN) == ()
