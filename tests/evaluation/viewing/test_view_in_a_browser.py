"""`vlm-agent view` in Chromium: from the start page to the action drawn on a dropped picture.

Needs `apt-get install chromium`; continuous integration has it and refuses to skip.
"""

import base64
import io
import json

import pytest
from helpers.pages.browser import EXECUTABLE, Browser
from helpers.pages.viewing import scripted, viewing
from PIL import Image

from vlm_agent.action_languages import default_language
from vlm_agent.drawing.actions import PREDICTED
from vlm_agent.episodes import Action

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="chromium is not installed")

DROP = """(() => {
  const bytes = Uint8Array.from(atob(%s), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], "screen.png", { type: "image/png" }));
  document.getElementById("drop").dispatchEvent(
    new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: transfer }));
})()"""

PIXELS = """(() => {
  const drawn = document.getElementById("drawn");
  const canvas = document.createElement("canvas");
  canvas.width = drawn.naturalWidth;
  canvas.height = drawn.naturalHeight;
  const context = canvas.getContext("2d");
  context.drawImage(drawn, 0, 0);
  const column = context.getImageData(101, 180, 1, 44).data;
  return [...Array(44).keys()].map((at) => [...column.slice(4 * at, 4 * at + 3)]);
})()"""
"""A column through the tapped point, up to the ring around it."""


def test_a_dropped_picture_and_a_goal_show_the_drawn_action(output, tmp_path):
    answer = default_language().encode(Action.tap(0.5, 0.5))
    with viewing(output, scripted(answer)) as server, Browser(tmp_path / "profile") as browser:
        browser.open(server.address)
        assert browser.run("window.pwned === undefined")
        assert browser.run("document.querySelectorAll('article').length") == 6
        browser.wait_for("[...document.images].filter((image) => image.naturalWidth).length === 2")
        browser.open(f"http://{server.hosts[0]}/file/evaluation/report.html")
        assert browser.run("[window.ran, window.origin]") == [1, "null"]

        browser.open(f"http://{server.hosts[0]}/ask")
        file = io.BytesIO()
        Image.new("RGB", (200, 400), "white").save(file, "PNG")
        browser.run(DROP % json.dumps(base64.b64encode(file.getvalue()).decode()))
        assert browser.run("document.getElementById('file').textContent") == "screen.png"
        browser.run("document.getElementById('goal').focus()")
        browser.call("Input.insertText", text="open the <b>clock</b>")
        browser.run("document.getElementById('send').click()")
        browser.wait_for("!document.getElementById('result').hidden && document.getElementById('drawn').complete")
        assert "tap at x 0.51, y 0.51" in browser.run("document.getElementById('texts').textContent")
        assert browser.run("document.getElementById('drawn').naturalWidth") == 200
        column = browser.run(PIXELS)
        differences = [max(abs(a - b) for a, b in zip(pixel, PREDICTED, strict=True)) for pixel in column]
        assert min(differences) < 60 and column[22] == [255, 255, 255]  # smoothed edges around what is tapped
        assert browser.log == []
