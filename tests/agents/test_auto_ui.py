"""The agent of Auto-UI: batched answers equal single ones, and its inputs are those that its run was trained on."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from helpers import tiny
from helpers.models.tokenizers_of_all_kinds import normalising
from helpers.runs import auto_ui_run
from helpers.runs.adapted_run import write_run as write_llama_run
from tokenizers import normalizers

from vlm_agent.action_languages import LANGUAGES, language_settings
from vlm_agent.agents import answer_step_by_step
from vlm_agent.agents.agent import demonstrated
from vlm_agent.agents.auto_ui import AutoUiSettings
from vlm_agent.agents.auto_ui.agent import AutoUiAgent, prepare
from vlm_agent.agents.auto_ui.features import ScreenFeatures
from vlm_agent.agents.controls import CONTROLS, ControlledAgent, controls_of
from vlm_agent.agents.decoding import constrained
from vlm_agent.agents.decoding.greedy import Limits, decode_sentence, most_likely
from vlm_agent.agents.loading import AgentError, agent_settings
from vlm_agent.cli import FAILED, OK, main
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.episodes import Action
from vlm_agent.errors import CheckpointError, DatasetError, UserError
from vlm_agent.evaluation.predictions import read_predictions
from vlm_agent.files import read_checked
from vlm_agent.models.build import load_sentences
from vlm_agent.models.features import load_extractor
from vlm_agent.models.features.store import FeatureStore
from vlm_agent.recipe.model import FeatureSettings
from vlm_agent.sentences import Sentence

EPISODES = [
    *(tiny.episode(number) for number in range(2)),
    tiny.episode(2, (Action.complete(),)),
    tiny.episode(3, tiny.ACTIONS[::-1] + tiny.ACTIONS),
]
RECORDED = EPISODES[1:3]
STEPS = sum(map(len, RECORDED))
SETTINGS = FeatureSettings(extractor=auto_ui_run.EXTRACTOR, form="patches")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    auto_ui_run.register(monkeypatch)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        auto_ui_run.register(patch)
        return auto_ui_run.write_run(tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    return tiny.write_shards(tmp_path_factory.mktemp("shards"), RECORDED, split="test")


def agent_of(folder: Path, **data) -> AutoUiAgent:
    return AutoUiAgent.from_run(auto_ui_run.write_run(folder / "run", **data))


class Recorder:
    """A decoder that keeps the sentences that it begins."""

    def __init__(self, decoder) -> None:
        self._decoder, self.sentences = decoder, list[Sentence]()

    def begin(self, sentence):
        self.sentences.append(sentence)
        return self._decoder.begin(sentence)

    def begin_batch(self, sentences):
        self.sentences += sentences
        return self._decoder.begin_batch(sentences)

    def __getattr__(self, name):
        return getattr(self._decoder, name)


def recorded(agent: AutoUiAgent) -> tuple[AutoUiAgent, list[Sentence]]:
    recorder = Recorder(agent.decoder)
    return replace(agent, decoder=recorder), recorder.sentences


def features_of(pixels: np.ndarray) -> np.ndarray:
    return load_extractor(SETTINGS).extract([pixels])[0]


@pytest.mark.parametrize(
    "data",
    [{}, {"past_screens": 2, "elements": True}, {"history": 0, "future": 0}, {"max_source_tokens": 30}],
    ids=["paper", "screens", "no_chains", "cut"],
)
def test_batched_answers_are_those_of_each_step_alone(tmp_path, data):
    agent = agent_of(tmp_path, **data)
    alone = answer_step_by_step(agent, EPISODES)
    for batch_size in (4, 32):
        together = replace(agent, batch_size=batch_size).answer_episodes(EPISODES)
        assert together == alone
        assert [[one.usage.tokens for one in answers] for answers in together] == [
            [one.usage.tokens for one in answers] for answers in alone
        ]
    assert len({answer.text for answers in alone for answer in answers}) > 2


@pytest.mark.parametrize(("seed", "dtype"), [(0, torch.float32), (1, torch.float32), (2, torch.float64)])
def test_batched_tokens_are_those_of_decoding_one_by_one_at_any_lengths(tmp_path, seed, dtype):
    agent, sentences = recorded(AutoUiAgent.from_run(auto_ui_run.write_run(tmp_path / "run", seed=seed)))
    agent.model.to(dtype)
    for episodes in (EPISODES[:1], EPISODES):
        agent.answer_episodes(episodes)
    sentences = list(sentences)  # decoding records more
    assert len({len(sentence) for sentence in sentences}) > 4
    decoder, limits = agent.decoder, Limits(agent.sentences.end_mark, 20)
    with torch.inference_mode():
        alone = [decode_sentence(decoder, sentence, most_likely, limits) for sentence in sentences]
        assert alone == replace(agent, batch_size=5)._decode(sentences, most_likely, limits)
    assert len({tuple(ids) for ids in alone}) > 2


def test_constrained_answers_are_actions_behind_a_plan_in_batches_and_alone(run):
    agent = AutoUiAgent.from_run(run)
    free, constrained = (one.answer_episodes(RECORDED) for one in (agent, replace(agent, constrained=True)))
    assert constrained == answer_step_by_step(replace(agent, constrained=True), RECORDED)
    assert all(answer.action is None for answers in free for answer in answers)
    for answer in (answer for answers in constrained for answer in answers):
        assert answer.action is not None
        assert 1 <= len(answer.notes["plan"].split("\n")) <= 4
        assert answer.text.startswith(
            f"Action Plan: [{answer.notes['plan'].replace(chr(10), ',')}] ; Action Decision: "
        )


def target_ids(sentences, steps) -> list[int]:
    return sentences.encode(sentences.target(steps), ()).input_ids


def test_a_free_answer_has_the_plan_and_the_action_of_its_text(run, monkeypatch):
    agent = AutoUiAgent.from_run(run)
    target = target_ids(agent.sentences, EPISODES[0].steps)
    monkeypatch.setattr(type(agent), "_decode", lambda *_: [target] * STEPS)
    _, answers = agent.answer_episodes(RECORDED[::-1])
    first = answers[0]
    assert first.notes == {"plan": "DUAL_POINT\nDUAL_POINT\nTYPE\nPRESS_ENTER"}
    assert first.action == EPISODES[0].steps[0].action


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_decision_behind_a_plan_is_read_in_every_language(run, monkeypatch, name):
    language = language_settings({"name": name}).build()
    agent = AutoUiAgent.from_run(run)
    agent = replace(agent, sentences=replace(agent.sentences, language=language))
    episode = EPISODES[3]
    written = [target_ids(agent.sentences, episode.steps[number:]) for number in range(len(episode))]
    monkeypatch.setattr(type(agent), "_decode", lambda *_: written)
    (answers,) = agent.answer_episodes([episode])
    for answer, step in zip(answers, episode.steps, strict=True):
        action = language.decode(language.encode(step.action, step.screen), step.screen)
        assert action is not None and answer.action == action


def test_the_source_has_the_earlier_actions_and_the_features_of_its_screens(tmp_path):
    agent, sentences = recorded(agent_of(tmp_path, past_screens=1))
    episode = EPISODES[0]
    agent.answer_episodes([episode])
    for number, sentence in enumerate(sorted(sentences, key=lambda one: one.input_ids.count(0) or len(one))):
        expected = agent.sentences.source(episode.goal, episode.steps[:number], episode.steps[number].screen)
        assert sentence.input_ids == agent.sentences.encode(expected.segments, ()).input_ids
        seen = [episode.steps[place].screenshot for place in range(max(0, number - 1), number + 1)]
        assert np.array_equal(np.stack(sentence.screens), np.stack([features_of(pixels) for pixels in seen]))


@pytest.mark.parametrize("in_batches", [True, False], ids=["batched", "act"])
def test_the_grey_control_reads_grey_features_and_no_history_neither_actions_nor_earlier_screens(tmp_path, in_batches):
    agent, sentences = recorded(agent_of(tmp_path, past_screens=2))
    episode = EPISODES[0]
    source = agent.sentences.source(episode.goal, [], episode.steps[0].screen)
    goal_alone = agent.sentences.encode(source.segments, ()).input_ids

    def inputs(control: str | None) -> list[tuple[list[int], list[np.ndarray]]]:
        under = agent if control is None else ControlledAgent(agent, CONTROLS[control])
        sentences.clear()
        under.answer_episodes([episode]) if in_batches else answer_step_by_step(under, [episode])
        return sorted(((one.input_ids, one.screens) for one in sentences), key=lambda pair: len(pair[0]))

    own, grey, no_history = inputs(None), inputs("grey_screens"), inputs("no_history")
    assert [ids for ids, _ in grey] == [ids for ids, _ in own]
    blank = features_of(np.full((*tiny.SCREEN, 3), 128, np.uint8))
    assert all(np.array_equal(screen, blank) for _, screens in grey for screen in screens)
    assert not any(np.array_equal(screen, blank) for _, screens in own for screen in screens)
    assert sorted(len(screens) for _, screens in own) == [1, 2, 3, 3, 3]
    assert [ids for ids, _ in no_history] == [goal_alone] * len(episode)
    current = sorted(screens[-1].tobytes() for _, screens in own)
    assert sorted(screen.tobytes() for _, screens in no_history for screen in screens) == current


def test_a_run_trained_under_a_control_is_under_it(tmp_path):
    folder = auto_ui_run.write_run(tmp_path / "run", control="grey_screens")
    agent = AutoUiSettings(run=str(folder)).load()
    assert isinstance(agent, ControlledAgent)
    assert agent.control is CONTROLS["grey_screens"]


def test_screens_are_extracted_once_also_over_a_history(tmp_path):
    agent, episode = agent_of(tmp_path, past_screens=4), EPISODES[3]
    for number, step in enumerate(episode.steps):
        agent.act(episode.goal, demonstrated(episode, number), step.screen)
    assert auto_ui_run.COLOURS.screens == len(episode)
    agent.answer_episodes([episode])
    ControlledAgent(agent, CONTROLS["grey_screens"]).answer_episodes([episode])
    assert auto_ui_run.COLOURS.screens == len(episode) + 1


def test_the_cache_of_features_has_a_limit():
    extractor = load_extractor(SETTINGS)
    screens = [step.screenshot for step in EPISODES[3].steps]
    own = ScreenFeatures(lambda: extractor, cache_bytes=3 * 8 * 3 * 2)  # three screens
    for _ in range(2):
        features = own.of([own.lookup(screen) for screen in screens])
        assert np.array_equal(np.stack(features), extractor.extract(screens))
    assert len(own._computed) == 3
    assert all(features.base is None for features in own._computed.values())  # a view keeps its whole batch


def test_missing_pixels_and_missing_elements_are_errors_that_say_so(tmp_path):
    agent = agent_of(tmp_path, elements=True)
    screen = EPISODES[0].steps[0].screen
    with pytest.raises(UserError, match=r"data\.elements: true\), and this source provides none"):
        agent.act("open settings", [], replace(screen, elements=None))
    with pytest.raises(UserError, match="this agent reads screenshots, and this source has none"):
        agent.act("open settings", [], replace(screen, pixels=None))
    assert agent.act("open settings", [], replace(screen, elements=())).text


def test_data_without_elements_are_refused_by_a_run_that_reads_them(tmp_path):
    agent, episode = agent_of(tmp_path, elements=True), EPISODES[0]
    bare = replace(episode, steps=tuple(replace(step, elements=()) for step in episode.steps))
    with pytest.raises(UserError, match=rf"none of {len(episode)} steps, from episode {episode.id} on, has any"):
        agent.answer_episodes([bare])
    assert len(agent.answer_episodes([bare, episode])) == 2
    assert agent.answer_episodes([bare])  # a single episode may have screens without elements


def test_typed_text_that_the_language_does_not_write_is_marked(run):
    agent = AutoUiAgent.from_run(run)
    episode = tiny.episode(0, (Action.type_text("hello 'world'"), Action.type_text("hello world"), Action.complete()))
    assert all(agent.sentences.is_writable(step) for step in episode.steps)
    assert agent.preparation()(episode).unwritable == [True, False, False]


def test_a_goal_that_is_too_long_is_an_error_that_names_the_episode(run):
    agent, episode = AutoUiAgent.from_run(run), replace(EPISODES[0], goal="open settings " * 300)
    with pytest.raises(UserError, match=r"episode 0: the goal .* more than data\.max_source_tokens \(512\)"):
        agent.answer_episodes([episode])


def test_an_action_that_the_tokenizer_cannot_write_is_marked(run):
    agent = AutoUiAgent.from_run(run)
    loud = normalising(normalizers.Replace("LOUD", "loud"))
    episode = tiny.episode(0, (Action.type_text("LOUD"), Action.complete()))
    prepared = prepare(auto_ui_run.sentences(loud), agent.features.lookup, episode)
    assert prepared.unwritable == [True, False]
    prepared = replace(
        prepared, sources=[agent.sentences.source("open settings", [], EPISODES[0].steps[0].screen).segments] * 2
    )
    (answers,) = agent.answer_prepared([prepared])
    assert [answer.diagnostics.unwritable for answer in answers] == [True, False]


def test_features_of_other_weights_than_in_training_are_refused(run, shards, tmp_path):
    write_features(shards, tmp_path / "features")
    about = AutoUiAgent.from_run(run).model.config.features
    store = FeatureStore(tmp_path / "features")
    right, wrong = about | {"digest": store.digest}, about | {"digest": "0" * 64}
    cpu = torch.device("cpu")
    assert ScreenFeatures.of_model(right, store, cpu).lookup(RECORDED[0].steps[0].screenshot).features is not None
    assert ScreenFeatures.of_model(right, None, cpu).lookup(RECORDED[0].steps[0].screenshot).features is None
    with pytest.raises(DatasetError, match=f"{tmp_path / 'features' / 'manifest.json'} is of another checkpoint"):
        ScreenFeatures.of_model(wrong, store, cpu)
    with pytest.raises(CheckpointError, match="are not those that computed the features of this model's training"):
        ScreenFeatures.of_model(wrong, None, cpu)
    for key in ("digest", "precision"):
        lacking = {name: value for name, value in right.items() if name != key}
        with pytest.raises(CheckpointError, match=f"configuration lacks {key}, .* restore RUN/features.json"):
            ScreenFeatures.of_model(lacking, store, cpu)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_features_are_computed_in_the_precision_of_training_and_stored_ones_of_another_refused(
    run, shards, tmp_path, precision
):
    about = AutoUiAgent.from_run(run).model.config.features | {"precision": precision}
    write_features(shards, tmp_path / "features")
    store, cpu = FeatureStore(tmp_path / "features"), torch.device("cpu")
    assert ScreenFeatures.of_model(about, None, cpu)._extractor.precision == precision
    if precision == store.precision:
        assert ScreenFeatures.of_model(about, store, cpu)._extractor.precision == precision
    else:
        with pytest.raises(DatasetError, match=r"computed in float32, and .* computed in bfloat16; .* --bf16 --output"):
            ScreenFeatures.of_model(about, store, cpu)


CONSTRAINED = ("--agent.constrained", "true")


def evaluate(run: Path, shards: Path, output: Path, *options: str) -> int:
    return main(["evaluate", "--agent", str(run), "--shards", str(shards), "--output", str(output), *options])


def test_evaluate_resumes_and_writes_the_same_with_loader_processes_and_any_batch_size(run, shards, tmp_path, capsys):
    options = (*CONSTRAINED, "--controls", "no_history")
    outputs = [tmp_path / name for name in ("whole", "workers", "resumed")]
    assert evaluate(run, shards, outputs[0], *options) == OK
    assert evaluate(run, shards, outputs[1], *options, "--workers", "2") == OK
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControlledAgent, "answer_episodes", interrupted)
        assert evaluate(run, shards, outputs[2], *options, "--workers", "0") == FAILED
    assert "stopped before the controls" in capsys.readouterr().err
    written = list((outputs[2] / "parts").rglob("*trained*"))
    assert written
    assert evaluate(run, shards, outputs[2], *options) == OK
    whole, *others = [
        [read_predictions(output / name) for name in ("predictions.parquet", "predictions_no_history.parquet")]
        for output in outputs
    ]
    assert [whole] * 2 == others
    assert len(whole[0]) == STEPS
    scores = read_checked(outputs[0] / "metrics.json", "evaluate again")
    assert [*scores][:2] == ["trained", "no_history"]
    assert scores["trained"]["about"]["settled_by_prefill"] == 0
    assert evaluate(run, shards, outputs[0], *options, "--agent.batch_size", "7") == FAILED
    assert "batch_size" in capsys.readouterr().err


OTHER_RUNS = tuple(f"predictions_{name}.parquet" for name in controls_of(()))


def interrupted(*_):
    raise InterruptedError("stopped before the controls")


def test_evaluate_reads_stored_features_and_computes_only_those_of_grey_screens(run, shards, tmp_path, capsys):
    assert evaluate(run, shards, tmp_path / "computed") == OK
    write_features(shards, tmp_path / "features")
    auto_ui_run.COLOURS.screens = 0
    options = ("--agent.features", str(tmp_path / "features"))
    assert evaluate(run, shards, tmp_path / "stored", *options) == OK
    assert auto_ui_run.COLOURS.screens == 1
    # An evaluation may be resumed with or without them, because they are equal.
    assert evaluate(run, shards, tmp_path / "computed", *options) == OK
    for name in ("predictions.parquet", *OTHER_RUNS):
        assert read_predictions(tmp_path / "stored" / name) == read_predictions(tmp_path / "computed" / name)


def write_features(shards: Path, output: Path, form: str = "patches") -> None:
    where = ["--output", str(output), "--form", form]
    assert main(["features", str(shards), "--extractor", auto_ui_run.EXTRACTOR, *where]) == OK


def test_stored_features_of_another_form_are_an_error_that_names_them(run, shards, tmp_path, capsys):
    write_features(shards, tmp_path / "pooled", "pooled")
    assert evaluate(run, shards, tmp_path / "out", "--agent.features", str(tmp_path / "pooled")) == FAILED
    error = capsys.readouterr().err
    assert "pooled" in error and "patches" in error and str(tmp_path / "pooled") in error


@pytest.mark.parametrize(
    ("data", "controls"), [({}, ()), ({"elements": True, "past_screens": 1}, controls_of(()))], ids=["paper", "screens"]
)
def test_it_acts_on_a_simulated_phone(tmp_path, data, controls):
    folder = auto_ui_run.write_run(tmp_path / "run", **data)
    file = tmp_path / "agent.yaml"
    file.write_text(yaml.safe_dump({"agent": "auto_ui", "run": str(folder), "constrained": True}))
    trace = tmp_path / "trace"
    command = ["act", "--agent", str(file), "--device", "simulated:general/test/7", "--trace", str(trace)]
    assert main([*command, "--steps", "2"]) in (OK, FAILED)
    assert read_trace(trace).steps[0].answer.startswith("Action Plan: [")
    output = tmp_path / "online"
    online = ["evaluate", "--online", "--agent", str(file), "--tasks", "1", "--output", str(output)]
    assert main([*online, "--controls", *(controls or ["none"])]) == OK
    runs = json.loads((output / "online.json").read_text())["runs"]
    assert runs["trained"]["overall"]["unparsed"] == 0
    assert set(controls) < set(runs)


def test_the_agent_of_a_run_follows_from_its_sentences(run, tmp_path):
    assert isinstance(agent_settings(str(run)), AutoUiSettings)
    assert isinstance(agent_settings(checkpoint=str(run)), AutoUiSettings)
    other = str(write_llama_run(tmp_path))
    assert agent_settings(other).agent == "vlm"
    file = tmp_path / "agent.yaml"
    for kind, folder, words in (("auto_ui", other, "trajectory"), ("vlm", str(run), "chain_of_actions")):
        file.write_text(yaml.safe_dump({"agent": kind, "run": folder}))
        with pytest.raises(UserError, match=rf"{folder} was trained on data\.sentences: {words}; agent {kind} needs"):
            agent_settings(str(file)).load()
    with pytest.raises(AgentError, match=r"--agent: unknown key batch_tokens; did you mean batch_size\?"):
        agent_settings(str(run), overrides={"batch_tokens": 1024})


def test_commands_for_chat_turns_refuse_such_a_run_with_one_line(run, shards, tmp_path, capsys):
    as_trained = ["--endpoint", "http://localhost:1", "--agent.model", "mine", "--agent.as_trained", str(run)]
    assert main(["evaluate", *as_trained, "--shards", str(shards), "--output", str(tmp_path / "out")]) == FAILED
    assert f"{run} was trained on data.sentences: chain_of_actions" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    command = ["serve-check", str(run), "--endpoint", "http://localhost:1", "--model", "mine", "--shards", str(shards)]
    assert main(command) == FAILED
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "chain_of_actions" in line
    with pytest.raises(CheckpointError, match="reads sentences of kind chain_of_actions; trajectories are needed"):
        load_sentences(run, tiny.LANGUAGE)


def test_constrained_decoding_with_a_tokenizer_without_bytes_is_an_error_before_any_prediction(
    run, shards, tmp_path, monkeypatch, capsys
):
    def refuse(tokenizer):
        raise CheckpointError("this tokenizer cannot write every byte")

    monkeypatch.setattr(constrained, "token_bytes", refuse)
    assert evaluate(run, shards, tmp_path / "out", *CONSTRAINED) == FAILED
    assert "this tokenizer cannot write every byte" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.parquet"))
    with pytest.raises(CheckpointError, match="cannot write every byte"):
        AutoUiAgent.from_run(run, constrained=True)
