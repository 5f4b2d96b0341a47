"""The review in Chromium: keys, edits, no script of a text runs, nothing is loaded from elsewhere.

Needs `apt-get install chromium`; continuous integration has it and refuses to skip.
"""

import json

import pytest
from helpers.agents.chat_server import Reply, serving
from helpers.data.feature_shards import write_several
from helpers.pages.annotation_requests import written
from helpers.pages.browser import EXECUTABLE, Browser
from helpers.pages.reviewing import reviewing

from vlm_agent.annotation.edits import EditStore
from vlm_agent.cli import main
from vlm_agent.datasets.shards.dataset import ShardDataset

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="chromium is not installed")

EVIL = "</textarea></title><script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"


@pytest.fixture(scope="module")
def annotated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("review")
    shards = write_several(folder / "shards")
    with serving(lambda _, body: Reply(f"{EVIL} {written(body)}")) as (url, _):
        words = ["annotate", str(shards), "--endpoint", url, "--model", EVIL, "--output", str(folder / "out")]
        assert main(words) == 0
    return folder / "out"


@pytest.fixture
def server(annotated):
    with reviewing(annotated) as server:
        yield server


@pytest.fixture
def browser(server, tmp_path):
    with Browser(tmp_path / "profile") as browser:
        browser.open(server.address)
        yield browser


def press(browser, key, **options):
    at = "(document.activeElement ?? document.body)"
    init = json.dumps({"key": key, "bubbles": True, "cancelable": True} | options)
    # Later, because the key may leave the page, and with it the script.
    browser.run(f"void setTimeout(() => {at}.dispatchEvent(new KeyboardEvent('keydown', {init})))")


def type_into(browser, name, text):
    """Types as a person does: through the browser's input, at the end of the text."""
    browser.run(f"document.getElementById('{name}').focus(), document.getElementById('{name}').select()")
    browser.call("Input.insertText", text=text)


def at(browser, path):
    """Waits for a page. A script that runs while another page is left is an error of the browser."""
    for _ in range(20):
        try:
            browser.wait_for(f"location.pathname === '{path}' && document.readyState === 'complete'")
            return
        except AssertionError as error:
            if "navigated" not in str(error) and "context" not in str(error):
                raise
    raise AssertionError(f"{path} was not shown")


def stored(annotated, index):
    return EditStore(annotated / ".annotation").load(ShardDataset(annotated).ids[index])


def test_a_review_by_keys_alone(annotated, server, browser):
    assert browser.run("document.querySelectorAll('article').length") == 4
    browser.run("document.querySelector('a.main').click()")
    at(browser, "/step/0/0")
    assert browser.run("document.querySelectorAll('textarea').length") == 4
    notes = ShardDataset(annotated).without_pixels(0).steps[0].notes
    values = browser.run("[...document.querySelectorAll('textarea')].map((area) => area.value)")
    assert values == [notes[name] for name in ("screen", "think", "action", "result")]
    browser.wait_for("[...document.images].every((image) => image.naturalHeight === 1000)")
    assert browser.run("document.images.length") == 2

    press(browser, "b")
    browser.wait_for("document.images[0].src.endsWith('/screen/0/0?boxes') && document.images[0].complete")
    press(browser, "n")
    at(browser, "/step/0/1")
    press(browser, "p")
    at(browser, "/step/0/0")
    press(browser, "a")
    at(browser, "/step/0/1")
    assert stored(annotated, 0)[0].accepted
    assert stored(annotated, 0)[0].texts == {}

    type_into(browser, "think", "I see <b>this</b>, so I do that.")
    assert browser.run("document.getElementById('message').textContent") == "Not saved yet"
    press(browser, "n")  # a letter of the text, not a command
    assert browser.run("location.pathname") == "/step/0/1"
    press(browser, "Enter", ctrlKey=True)
    at(browser, "/step/0/2")
    assert stored(annotated, 0)[1].texts == {"think": "I see <b>this</b>, so I do that."}
    press(browser, "ArrowLeft")
    at(browser, "/step/0/1")
    assert browser.run("document.getElementById('think').value") == "I see <b>this</b>, so I do that."
    assert browser.run("document.getElementById('state-think').textContent") == "edited"
    press(browser, "o")
    at(browser, "/step/0/2")
    press(browser, "Escape")
    at(browser, "/")
    assert browser.run("document.querySelectorAll('a.chip.accepted').length") == 2
    assert browser.run("document.querySelectorAll('a.chip.edited').length") == 1


def test_leaving_a_step_saves_it_and_acceptance_can_be_withdrawn(annotated, server, browser):
    browser.open(f"http://{server.hosts[0]}/step/2/0")
    type_into(browser, "screen", "left open")
    press(browser, "Escape")
    press(browser, "ArrowRight")
    at(browser, "/step/2/1")
    assert stored(annotated, 2)[0].texts == {"screen": "left open"}
    assert not stored(annotated, 2)[0].accepted
    press(browser, "a")
    at(browser, "/step/2/2")
    press(browser, "p")
    at(browser, "/step/2/1")
    browser.run("document.getElementById('withdraw').click()")
    browser.wait_for("document.getElementById('withdraw').hidden")
    assert not stored(annotated, 2)[1].accepted


def test_what_is_not_saved_is_named_and_stays(server, browser):
    browser.open(f"http://{server.hosts[0]}/step/3/0")
    type_into(browser, "result", "kept")
    server.token = server.token[::-1]  # as if this were a later review
    press(browser, "s")  # within the text
    press(browser, "Escape")
    press(browser, "s")
    browser.wait_for("document.getElementById('message').className === 'failed'")
    assert browser.run("document.getElementById('message').textContent").startswith("Not saved: Open the address")
    press(browser, "n")
    browser.wait_for("document.getElementById('message').textContent.startsWith('Not saved')")
    assert browser.run("location.pathname") == "/step/3/0"
    assert browser.run("document.getElementById('result').value") == "kept"
    browser.run("for (const area of document.querySelectorAll('textarea')) area.value = area.defaultValue")


def test_no_text_becomes_markup_and_nothing_comes_from_elsewhere(server, browser):
    for path in ("/", "/step/0/0", "/step/1/3"):
        browser.open(f"http://{server.hosts[0]}{path}")
        assert browser.run("window.pwned === undefined")
        assert browser.run("document.querySelectorAll('img[src=x], script:not([src])').length") == 0
        assert browser.log == []
        assert {url.partition("/")[0] + "//" + url.split("/")[2] for url in browser.requests if url != "data:,"} == {
            f"http://{server.hosts[0]}"
        }


def test_another_site_can_neither_read_nor_write(annotated, server, browser, tmp_path):
    page = tmp_path / "elsewhere.html"
    page.write_text("<!doctype html><p>elsewhere")
    browser.open(page.as_uri())
    before = stored(annotated, 1)
    url = f"http://{server.hosts[0]}/step/1/0"
    body = json.dumps({"texts": {}, "accepted": True})
    for options in (f"{{method: 'POST', body: {json.dumps(body)}}}", "{}", "{mode: 'no-cors', credentials: 'include'}"):
        script = f"fetch('{url}', {options}).then((reply) => reply.text(), () => '')"
        assert browser.run(script) == ""
    assert stored(annotated, 1) == before
