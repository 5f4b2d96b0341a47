"""The prompting agent: what each mode shows to the model, what its answers become, and what its calls cost."""

import base64
import json
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from helpers import tiny
from helpers.chat_server import Reply, serving
from rich.console import Console

from vlm_agent.agents import Answer, Turn, demonstrated
from vlm_agent.agents.coat import CoatAgentSettings
from vlm_agent.agents.coat.agent import CoatAgent
from vlm_agent.agents.coat.elements import in_rows
from vlm_agent.agents.coat.prompts import PROMPTS, Prompts
from vlm_agent.agents.controls import CONTROLS, ControlledAgent
from vlm_agent.agents.llm.client import EndpointError
from vlm_agent.agents.llm.prompts import PromptError
from vlm_agent.agents.loading import AgentError, agent_settings
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.shards.images import decode_screen
from vlm_agent.datasets.sources.aitz import read_steps
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.episodes import Action, CoatTexts, Episode, Screen, Step, UiElement, recorded_screen
from vlm_agent.evaluation.online import evaluate_online
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.texts.phone import result_text, screen_text

PLAIN = tiny.episode(1)
WITH_TEXTS = replace(
    PLAIN,
    steps=tuple(
        replace(step, coat=CoatTexts(f"screen {n}", f"thought {n}", f"action {n}", f"result {n}"))
        for n, step in enumerate(PLAIN.steps)
    ),
)
"""The same episode with recorded texts."""

CALL = '{"THINK": "the cart\\nis full", "NEXT": "click on Clear cart", "ACTION": "click_element", "ARGS": {"idx": 1}}'


def agent(url: str, folder, **options) -> CoatAgent:
    settings = {"endpoint": url, "model": "vlm", "calls": str(folder), "attempts": 1} | options
    return CoatAgentSettings(**settings).load()


def asked(tmp_path, episode=PLAIN, number: int = 3, reply: str = CALL, **options) -> tuple[list[list[dict]], Answer]:
    """The messages of all calls of one step, and its answer."""
    with serving(lambda n, body: Reply(reply)) as (url, requests):
        answer = agent(url, tmp_path / "calls", **options).act(
            episode.goal, demonstrated(episode, number), recorded_screen(episode, number)
        )
    return [call.body["messages"] for call in requests], answer


def text_of(messages: list[dict]) -> str:
    return messages[-1]["content"][0]["text"]


def pictures_of(messages: list[dict]) -> list[np.ndarray]:
    urls = [part["image_url"]["url"] for part in messages[-1]["content"][1:]]
    return [decode_screen(base64.b64decode(url.partition(",")[2])) for url in urls]


ELEMENTS = """\
Elements of the screen, with boxes in thousandths, x first:
0: "Wi-Fi" [0, 0, 500, 250]
1: "Clear cart" [0, 500, 1000, 750]
2: home icon [500, 750, 1000, 1000]"""


def test_coa_reads_goal_screen_and_types_of_the_actions(tmp_path):
    [messages], _ = asked(tmp_path, WITH_TEXTS, mode="coa")
    assert text_of(messages).split("\n\n") == [
        f"Goal: {PLAIN.goal}",
        "Types of all actions so far, in order: click_element, scroll, input",
        ELEMENTS,
        "Which action is next?",
    ]
    assert "THINK" not in messages[0]["content"]
    (picture,) = pictures_of(messages)
    assert np.array_equal(picture, PLAIN.steps[3].screenshot)


def test_cot_reads_goal_and_screen_alone_and_asks_for_a_thought_first(tmp_path):
    [messages], _ = asked(tmp_path, WITH_TEXTS, mode="cot")
    assert text_of(messages).split("\n\n") == [f"Goal: {PLAIN.goal}", ELEMENTS, "Which action is next?"]
    form = messages[0]["content"]
    assert form.index('"THINK"') < form.index('"ACTION"')
    assert "NEXT" not in form


def test_coat_reads_recorded_texts_actions_in_words_and_the_last_result(tmp_path):
    [messages], _ = asked(tmp_path, WITH_TEXTS, mode="coat")
    assert text_of(messages).split("\n\n") == [
        f"Goal: {PLAIN.goal}",
        "All actions so far, in order:\n1. action 0\n2. action 1\n3. action 2",
        "What the last action did: result 2",
        "This screen in words: screen 3",
        ELEMENTS,
        "Which action is next?",
    ]
    assert "result 3" not in str(messages) and "thought" not in str(messages) and "screen 4" not in str(messages)
    form = messages[0]["content"]
    assert form.index('"THINK"') < form.index('"NEXT"') < form.index('"ACTION"')


@pytest.mark.parametrize("texts", ["recorded", "phone"])
def test_without_recorded_texts_they_are_computed_from_the_screens(tmp_path, texts):
    [messages], _ = asked(tmp_path, PLAIN if texts == "recorded" else WITH_TEXTS, texts=texts)
    before, now = PLAIN.steps[2].screen, PLAIN.steps[3].screen
    text = text_of(messages)
    assert f"What the last action did: {result_text(before, now)}\n\nThis screen in words: {screen_text(now)}\n" in text


def test_a_text_that_the_episode_lacks_is_left_out(tmp_path):
    steps = [replace(step, coat=replace(step.coat, screen="", result="")) for step in WITH_TEXTS.steps]
    [messages], _ = asked(tmp_path, replace(WITH_TEXTS, steps=tuple(steps)))
    text = text_of(messages)
    assert "in words:" not in text and "last action" not in text and "3. action 2" in text


def test_the_control_of_results_shows_that_of_an_earlier_action_or_none(tmp_path):
    with serving(lambda n, body: Reply(CALL)) as (url, requests):
        controlled = ControlledAgent(agent(url, tmp_path), CONTROLS["shuffled_results"])
        for episode in (PLAIN, WITH_TEXTS):
            for number in (1, 3):
                controlled.act(episode.goal, demonstrated(episode, number), recorded_screen(episode, number))
    first, _, second, later = (text_of(call.body["messages"]) for call in requests)
    assert "last action" not in first + second
    assert "result 0" in later or "result 1" in later


@pytest.mark.parametrize(
    ("settings", "inputs", "notes"),
    [
        ({"mode": "coa"}, (), []),
        ({}, ("screen", "result", "action"), ["earlier actions without a description"]),
        ({"texts": "phone"}, ("action",), ["screen descriptions", "action results"]),
        ({"texts": "model"}, ("action",), ["screen descriptions", "action results"]),
    ],
)
def test_the_settings_name_the_texts_that_are_read_and_their_origin(settings, inputs, notes):
    chosen = CoatAgentSettings(endpoint="http://a:1", model="vlm", **settings)
    assert chosen.text_inputs == inputs
    assert [name for name in chosen.text_notes if name in notes] == notes


def test_earlier_actions_without_texts_are_described_by_a_template(tmp_path):
    [messages], _ = asked(tmp_path)
    lines = text_of(messages).split("\n\n")[1].splitlines()[1:]
    assert lines == ["1. click on the point (750, 250)", "2. scroll up", '3. type "grüße "world" 👋"']


def test_own_descriptions_are_the_history_of_a_run(tmp_path):
    turn = Turn(PLAIN.steps[0].screen, Answer("", None), Action.press("home"), CoatTexts(action="go home\nnow"))
    with serving(lambda n, body: Reply(CALL)) as (url, requests):
        agent(url, tmp_path).act("goal", [turn], PLAIN.steps[1].screen)
    assert "in order:\n1. go home now\n\n" in text_of(requests[0].body["messages"])


@pytest.mark.parametrize("texts", ["phone", "model"])
def test_thoughts_and_texts_that_utf8_cannot_hold_are_shown_at_the_next_step(tmp_path, texts):
    reply = CALL.replace("Clear cart", "\\ud800 cart") + "\ud800"
    screen = PLAIN.steps[0].screen
    with serving(lambda n, body: Reply(reply)) as (url, requests):
        coat = agent(url, tmp_path, texts=texts)
        first = coat.act("goal", [], screen)
        second = coat.act("goal", [Turn(screen, first, Action.press("home"), first.thoughts)], screen)
    assert (first.text, second.failed) == (reply, None)
    assert "1. click on ? cart" in text_of(requests[-1].body["messages"])


def test_the_first_step_has_no_paragraph_about_earlier_ones(tmp_path):
    for mode in ("coa", "coat"):
        [messages], _ = asked(tmp_path / mode, WITH_TEXTS, 0, mode=mode)
        assert "so far" not in text_of(messages) and "last action" not in text_of(messages)


def test_the_model_is_asked_for_texts_that_know_neither_goal_nor_later_screens(tmp_path):
    def answer(n: int, body: dict) -> Reply:
        text = text_of(body["messages"])
        return Reply("a cart\npage" if "Describe this screen" in text else "it opened" if "State in" in text else CALL)

    with serving(answer) as (url, requests):
        coat = agent(url, tmp_path, texts="model")
        answer = coat.act(WITH_TEXTS.goal, demonstrated(WITH_TEXTS, 3), recorded_screen(WITH_TEXTS, 3))
        coat.act(WITH_TEXTS.goal, demonstrated(WITH_TEXTS, 3), recorded_screen(WITH_TEXTS, 3))
    describe, compare, act = (call.body["messages"] for call in requests)
    assert WITH_TEXTS.goal not in str((describe, compare))
    assert [len(pictures_of(messages)) for messages in (describe, compare, act)] == [1, 2, 1]
    assert np.array_equal(pictures_of(compare)[0], WITH_TEXTS.steps[2].screenshot)
    assert "The action: action 2" in text_of(compare)
    assert "last action did: it opened\n\nThis screen in words: a cart page\n" in text_of(act)
    assert answer.thoughts == CoatTexts("a cart page", "the cart is full", "click on Clear cart")
    assert answer.usage.calls == 3
    assert len(requests) == 3  # the second time all replies were on disk


def test_marks_are_drawn_with_the_numbers_of_the_list(tmp_path):
    [messages], answer = asked(tmp_path, elements="marks")
    assert "Elements of the screen" not in text_of(messages)
    assert "the number beside the box" in messages[0]["content"]
    (picture,) = pictures_of(messages)
    assert not np.array_equal(picture, PLAIN.steps[3].screenshot)
    assert answer.action == Action.tap(0.625, 0.5)


@pytest.mark.parametrize("elements", [None, ()])
def test_without_elements_the_model_is_asked_for_a_box(tmp_path, elements):
    screen = Screen(PLAIN.steps[0].screenshot, elements)
    box = '{"ACTION": "click_element", "ARGS": {"bbox": [100, 200, 300, 400]}}'
    with serving(lambda n, body: Reply(box)) as (url, requests):
        answer = agent(url, tmp_path).act("goal", [], screen)
    assert "bbox" in (form := requests[0].body["messages"][0]["content"]) and "idx" not in form
    assert answer.action.touch_yx == pytest.approx((0.3, 0.2))
    assert answer.box == pytest.approx((0.2, 0.1, 0.2, 0.2))


def test_numbers_count_elements_in_rows_whatever_their_order_in_the_source(tmp_path):
    shuffled = [UiElement((0.5, 0.6, 0.1, 0.2), "d"), UiElement((0.02, 0.5, 0.1, 0.2), "b")]
    shuffled += [UiElement((0.0, 0.0, 0.1, 0.2), "a"), UiElement((0.48, 0.1, 0.1, 0.2), "c")]
    assert [element.text for element in in_rows(shuffled)] == ["a", "b", "c", "d"]
    screen = replace(PLAIN.steps[0].screen, elements=tuple(shuffled))
    with serving(lambda n, body: Reply(CALL)) as (url, _):
        answer = agent(url, tmp_path).act("goal", [], screen)
    assert answer.box == shuffled[1].box
    assert answer.action == Action.tap(*shuffled[1].centre_yx)


def test_odd_boxes_and_texts_stay_on_their_line(tmp_path):
    odd = (UiElement((0.5, 0.5, -0.1, -0.1), "a\n1: b"), UiElement((-0.2, -0.2, 3.0, 3.0), "", "odd"))
    screen = replace(PLAIN.steps[0].screen, elements=odd)
    with serving(lambda n, body: Reply(CALL)) as (url, requests):
        for kind in ("text", "marks"):
            agent(url, tmp_path, elements=kind).act("$goal {x}", [], screen)
    text = text_of(requests[0].body["messages"])
    assert text.startswith("Goal: $goal {x}\n")
    assert '0: "a\\n1: b" [500, 500, 400, 400]\n1: odd [0, 0, 1000, 1000]\n' in text


@pytest.mark.parametrize(
    ("reply", "action", "thoughts"),
    [
        (CALL, Action.tap(0.625, 0.5), ("the cart is full", "click on Clear cart")),
        (f"Sure!\n```json\n{CALL}\n```", Action.tap(0.625, 0.5), ("the cart is full", "click on Clear cart")),
        ('{"THINK": "cut', None, ("", "")),
        ('{"THINK": 7, "ACTION": "press_home", "ARGS": {}}', Action.press("home"), ("", "")),
        ('{"ACTION": "click_element", "ARGS": {"idx": 3}}', None, ("", "")),
        ("no idea", None, ("", "")),
        ("", None, ("", "")),
    ],
)
def test_an_answer_becomes_thoughts_and_an_action_or_none(tmp_path, reply, action, thoughts):
    _, answer = asked(tmp_path, mode="cot", reply=reply)
    assert (answer.text, answer.action, answer.failed) == (reply, action, None)
    assert answer.thoughts == (CoatTexts("", *thoughts) if any(thoughts) else None)


def test_a_hundred_thousand_generated_replies_are_read(tmp_path):
    """Replies with parts removed, repeated and exchanged: never an exception, and thoughts are always on one line."""
    coat, rng = agent("http://localhost:1", tmp_path), random.Random(0)
    pieces = [
        *'{}[]",:\\\n`0',
        "```json\n",
        '"THINK":',
        '"NEXT": "',
        '"ACTION"',
        '"ARGS": {',
        "null",
        "1e999",
        "\ud800",
    ]
    bodies = [CALL, CALL.replace('"idx": 1', '"bbox": [0, 10, 200, 999]'), "CLICK(0.5, 0.5)", "I press home.", ""]
    screen, counts = PLAIN.steps[0].screen, Counter()
    for _ in range(100_000):
        text = rng.choice(bodies)
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(pieces) * rng.choice((0, 1, 3)) + text[at + rng.choice((0, 1, 20)) :]
        answer = coat.read(text, screen)
        thoughts = answer.thoughts or CoatTexts()
        assert "\n" not in thoughts.think + thoughts.action
        counts["actions"] += answer.action is not None
        counts["thoughts"] += bool(thoughts.think)
        counts["boxes"] += answer.box is not None
    assert all(10_000 < counts[name] < 90_000 for name in ("actions", "thoughts", "boxes"))


@pytest.mark.parametrize(
    "text", ['"THINK": ' * 100_000, '"THINK": "' * 90_000, '"THINK"' + " " * 1_000_000, '"THINK": "' + "\\" * 1_000_001]
)
def test_a_megabyte_of_thoughts_is_read_within_a_second(tmp_path, text):
    start = time.perf_counter()
    assert agent("http://localhost:1", tmp_path).read(text, PLAIN.steps[0].screen).action is None
    assert time.perf_counter() - start < 1


def texts_at(episode: Episode, number: int) -> tuple[str, str]:
    """Description of the screen, and result of the action before."""
    steps = episode.steps
    return steps[number].coat.screen, steps[number - 1].coat.result if number else ""


def gold_call(step: Step) -> str:
    """The demonstrated action in call form."""
    action, (y, x) = step.action, (round(1000 * value) for value in step.action.touch_yx)
    if action.is_tap:
        return json.dumps({"ACTION": "click_element", "ARGS": {"bbox": [x - 5, y - 5, x + 5, y + 5]}})
    if action.is_swipe:
        return json.dumps({"ACTION": "scroll", "ARGS": {"direction": action.direction}})
    names = {"home": ("press_home", {}), "complete": ("stop", {"task_status": "success"})}
    name, arguments = names[action.name]
    return json.dumps({"ACTION": name, "ARGS": arguments})


def test_the_real_episode_is_prompted_and_scored(tmp_path, shared):
    """A served oracle answers every step of AitZ's published episode with its gold action: all of AitZ's metrics are
    100; and its texts are where they belong."""
    (path,) = (shared / "data/aitz_episode").glob("*.json")
    entries = list(read_steps(path))
    episode = Episode("1", "google_apps", entries[0].goal, tuple(entry.step for entry in entries))
    shards = tiny.write_shards(tmp_path / "shards", [episode], "test")

    def answer(n: int, body: dict) -> Reply:
        text = text_of(body["messages"])
        earlier = text.partition("in order:\n")[2].partition("\n\n")[0].splitlines()
        number = len(earlier)
        assert earlier == [f"{n}. {step.coat.action}" for n, step in enumerate(episode.steps[:number], 1)]
        screen, result = (" ".join(words.split()) for words in texts_at(episode, number))
        assert f"in words: {screen}\n" in text and result in text
        return Reply(gold_call(episode.steps[number]))

    with serving(answer) as (url, _):
        (tmp_path / "coat.yaml").write_text(FILE.format(url=url).replace("cot", "coat"))
        command = ["evaluate", "--agent", str(tmp_path / "coat.yaml"), "--benchmark", "eval/aitz.yaml"]
        assert main([*command, "--shards", str(shards), "--output", str(tmp_path / "out"), "--no-controls"]) == OK
    scores = json.loads((tmp_path / "out" / "metrics.json").read_text())["trained"]["aitz"]
    assert {cell["value"] for table in scores.values() for cell in table.values()} <= {100, None}
    report = (tmp_path / "out" / "report.html").read_text()
    assert "4 steps: annotation, made with goal and true action known" in report
    assert "a template: action and touched element" in report
    rows = read_predictions(tmp_path / "out" / "predictions.parquet")
    assert [row.box is not None for row in rows] == [row.gold.is_tap for row in rows]


def test_a_step_whose_call_fails_has_no_action_and_a_reason(tmp_path):
    with serving(lambda n, body: Reply(b"too large", 413) if n else Reply("a page")) as (url, _):
        answer = agent(url, tmp_path, texts="model").act("goal", [], PLAIN.steps[0].screen)
    assert answer.action is None
    assert "413: too large" in answer.failed
    assert answer.usage.calls is None  # one call was paid, but the cost of the whole step is unknown


@pytest.mark.parametrize("status", [401, 404])
def test_an_endpoint_that_cannot_be_used_is_an_error(tmp_path, status):
    with serving(lambda n, body: Reply(b"no", status)) as (url, _), pytest.raises(EndpointError):
        agent(url, tmp_path).act("goal", [], PLAIN.steps[0].screen)


def test_an_error_ends_the_calls_of_other_threads_without_another_request(tmp_path):
    def answer(n: int, body: dict) -> Reply:
        if "so far" in text_of(body["messages"]):
            return Reply(b"busy", 500, {"Retry-After": "1"})
        return Reply(b"no", 401, wait=0.3)  # of the first step

    start = time.perf_counter()
    with serving(answer) as (url, requests), pytest.raises(EndpointError, match="requires a key"):
        agent(url, tmp_path, attempts=20, concurrency=3).answer_episodes([PLAIN])
    assert time.perf_counter() - start < 5
    assert len(requests) <= 6


def test_under_the_control_without_history_no_earlier_step_is_shown(tmp_path):
    with serving(lambda n, body: Reply(CALL)) as (url, requests):
        controlled = ControlledAgent(agent(url, tmp_path), CONTROLS["no_history"])
        controlled.act(WITH_TEXTS.goal, demonstrated(WITH_TEXTS, 3), recorded_screen(WITH_TEXTS, 3))
    text = text_of(requests[0].body["messages"])
    assert "so far" not in text and "last action" not in text and "screen 3" in text


FILE = "agent: coat\nendpoint: {url}\nmodel: vlm\nmode: cot\nattempts: 1\nconcurrency: 2\n"


@pytest.fixture
def shards(tmp_path):
    return tiny.write_shards(tmp_path / "shards", [PLAIN, tiny.episode(2)], "test")


def test_evaluate_prints_estimate_and_spending_and_asks_nothing_twice(tmp_path, shards, capsys):
    path, output = tmp_path / "coat.yaml", tmp_path / "out"
    with serving(lambda n, body: Reply(CALL)) as (url, requests):
        path.write_text(FILE.format(url=url))
        command = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(output), "--no-controls"]
        assert main([*command, "--price", "1", "2"]) == OK
        out = capsys.readouterr().out
        assert out.index("Estimate for 10 steps, from 10: 10 calls,") < out.index("New: 10 calls,")
        assert "cost " in out
        other = [*command[:-2], str(tmp_path / "other"), "--no-controls", "--calls", str(output / "calls")]
        assert main(other) == OK
        assert "New: 0 calls, 0 tokens read, 0 written (10 replies from disk)" in capsys.readouterr().out
    assert len(requests) == 10
    first, second = (folder / "predictions.parquet" for folder in (output, tmp_path / "other"))
    assert first.read_bytes() == second.read_bytes()


def test_the_limit_of_cost_stops_an_evaluation_and_a_higher_one_completes_it(tmp_path, shards, capsys):
    usage = {"prompt_tokens": 0, "completion_tokens": 512}
    content = json.dumps({"choices": [{"message": {"content": CALL}}], "usage": usage}).encode()
    path, output = tmp_path / "coat.yaml", tmp_path / "out"
    with serving(lambda n, body: Reply(content)) as (url, requests):
        path.write_text(FILE.format(url=url) + "price: {read: 0, written: 1000000}\n")
        command = ["evaluate", "--agent", str(path), "--shards", str(shards), "--output", str(output), "--no-controls"]
        assert main([*command, "--max-cost", "2100", "--concurrency", "1"]) == FAILED
        captured = capsys.readouterr()
        assert "have cost 2048.00 of at most 2100.00" in captured.err
        assert "New: 4 calls" in captured.out
        assert len(requests) == 4
        assert main([*command, "--max-cost", "6000"]) == OK
    assert len(requests) == 10


def test_act_and_online_tasks(tmp_path, capsys):
    path, trace = tmp_path / "coat.yaml", tmp_path / "trace"
    done = '{"THINK": "done", "ACTION": "stop", "ARGS": {"task_status": "success"}}'
    with serving(lambda n, body: Reply(done)) as (url, _):
        path.write_text(FILE.format(url=url))
        command = ["act", "--agent", str(path), "--device", "simulated:general/test/7", "--trace", str(trace)]
        assert main(command) == FAILED  # it declares the goal reached without reaching it
        assert "Estimate for 30 steps, from 1: 30 calls" in (out := capsys.readouterr().out) and "New: 1 calls" in out
        assert [step.answer for step in read_trace(trace).steps] == [done]
        assert len(list((trace / "calls").rglob("*.json"))) == 1
        online = ["evaluate", "--online", "--agent", str(path), "--tasks", "1", "--output", str(tmp_path / "online")]
        assert main([*online, "--no-controls"]) == OK
        assert "New: 1 calls" in capsys.readouterr().out


def test_an_online_task_without_an_answer_is_repeated_by_the_same_command_and_the_others_are_finished(tmp_path, capsys):
    path, output, failing = tmp_path / "coat.yaml", tmp_path / "online", []
    done = '{"ACTION": "stop", "ARGS": {"task_status": "success"}}'

    def answer(n: int, body: dict) -> Reply:
        goal = text_of(body["messages"]).splitlines()[0]
        failing.extend([] if failing else [goal])
        return Reply(b"too large", 413) if goal == failing[0] else Reply(done)

    command = ["evaluate", "--online", "--agent", str(path), "--tasks", "3", "--output", str(output), "--no-controls"]
    with serving(answer) as (url, requests):
        path.write_text(FILE.format(url=url))
        assert main(command) == FAILED
        assert "could not answer in 1 task(s); first error: " in capsys.readouterr().err
        assert len(requests) == 3
        assert len(list(output.glob("trained/*/result.json"))) == 2
        failing[0] = "none"
        assert main(command) == OK
        assert len(requests) == 4


def test_ctrl_c_ends_online_tasks_that_wait_for_the_server(tmp_path):
    """The server is busy for a minute, so without an end of the waits this test takes minutes."""

    def answer(n: int, body: dict) -> Reply:
        if n == 1:
            thread = threading.main_thread().ident
            threading.Timer(0.5, signal.pthread_kill, [thread, signal.SIGINT]).start()
        return Reply(b"busy", 503, {"Retry-After": "60"})

    with serving(answer) as (url, requests):
        settings = CoatAgentSettings(endpoint=url, model="vlm", mode="cot")
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            evaluate_online(settings, tmp_path, Console(file=StringIO()), tasks=3, controls=False, workers=2)
        assert time.monotonic() - start < 30
        assert len(requests) == 2


def test_the_identity_has_prompts_and_mode_and_no_address_or_price(tmp_path):
    base = {"endpoint": "http://a:1", "model": "vlm"}
    identity = CoatAgentSettings(**base).identity()
    same = CoatAgentSettings(**base | {"endpoint": "http://b:2", "calls": "x", "price": {"read": 1, "written": 1}})
    assert same.identity() == identity
    own = tmp_path / "prompts.yaml"
    own.write_text(PROMPTS.read_text().replace("Which action is next?", "What now?"))
    for change in ({"mode": "coa"}, {"elements": "marks"}, {"texts": "model"}, {"prompts": str(own)}):
        assert CoatAgentSettings(**base | change).identity() != identity
    assert CoatAgentSettings(**base).language.name == "coat"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('question: "', 'qestion: "', "unknown key qestion"),
        ("$goal", "$gaol", "goal must have $goal"),
        ("$form", "$ form", "system must have $click and $form"),
        ("  box: ", "  bx: ", "clicks"),
    ],
)
def test_a_damaged_file_of_prompts_is_an_error_that_names_the_key(tmp_path, old, new, words):
    path = tmp_path / "prompts.yaml"
    path.write_text(PROMPTS.read_text().replace(old, new))
    with pytest.raises(PromptError, match=str(path)) as caught:
        Prompts.read(path)
    assert words in str(caught.value)


def test_texts_are_not_searched_for_placeholders():
    prompts: Prompts = Prompts.read(PROMPTS)
    assert prompts.fill("goal", goal="$goal $$ ${x}") == "Goal: $goal $$ ${x}"


@pytest.mark.parametrize(
    ("line", "words"),
    [("mode: cott", "mode"), ("max_cost: 3", "max_cost needs a price"), ("price: {read: 1}", "written")],
)
def test_an_invalid_setting_is_an_error(tmp_path, line, words):
    path = tmp_path / "coat.yaml"
    path.write_text(f"agent: coat\nendpoint: http://a:1\nmodel: vlm\n{line}\n")
    with pytest.raises(AgentError, match=words):
        agent_settings(str(path))
