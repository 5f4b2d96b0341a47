"""No option is ignored: beside other options each one has an effect, or is refused with the reason.

`MODES` lists for every command which options it accepts in which situation. The test adds every other option of the
command, one at a time, and expects a refusal. A new option fails it until it is listed or refused.
"""

import argparse
import importlib
import inspect
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from vlm_agent.cli import COMMANDS, main
from vlm_agent.cli.agent_options import PLACES
from vlm_agent.cli.card import PUBLISHED
from vlm_agent.cli.parser import USAGE, make_parser


@dataclass(frozen=True)
class Mode:
    """A command line that is accepted. `accepted`: the options, by `dest`, that may be added one at a time."""

    line: str
    accepted: frozenset[str] = frozenset()


def mode(line, *names):
    return Mode(line, frozenset(" ".join(names).split()))


BASES = " ".join(f"model.{place}" for place in PLACES)
PARTS = "--shard-index 0 --shard-count 2"
CONVERSION = "source split splits groups mixture max_pixels workers max_bad_fraction image_format update"
EXTRACTION = "form checkpoint batch_size bf16 workers"
CALLS = "max_tokens concurrency price requests_per_minute"
ANNOTATION = f"texts replace split subset limit prompts accept_missing {CALLS}"
SCORING = f"split groups limit workers controls elements {BASES}"
ACTING = f"elements goal trace steps apps allow_purchases animation {BASES}"
CARD = f"license upload {' '.join(PUBLISHED.values())}"
FOREIGN = "benchmark split limit action_language missing_as_wrong ignore_surplus"
DRAWN = "split subset html config draw"

MODES = {
    "simulate": [mode("--output x --episodes 3", "seed size scale thoughts workers")],
    "phone": [
        mode("", "port seed task size openenv"),
        mode("--task general/test/7", "port size"),
        mode("--openenv", "port language allow_test"),
    ],
    "convert": [
        mode("--input x --output y", CONVERSION),
        mode("--input x --output y --image-format jpeg", CONVERSION, "quality"),
        mode("--input x --output y --image-format webp", CONVERSION),
        mode("--input x --output y --max-pixels 9", CONVERSION, "multiple"),
        mode(f"--input x --output y {PARTS}", CONVERSION),
        mode("--finish --output y", "workers max_bad_fraction"),
    ],
    "convert-checkpoint": [mode("--input x --output y")],
    "features": [
        mode("x --extractor e --output y", EXTRACTION),
        mode("x --config c --output y", "batch_size bf16 workers"),
        mode(f"x --extractor e --output y {PARTS}", EXTRACTION),
        mode("--finish --output y"),
    ],
    "annotate": [
        mode("x --endpoint u --model m --output y", ANNOTATION),
        mode("x --endpoint u --model m --output y --texts plan", ANNOTATION, "screen"),
        mode("x --endpoint u --model m --output y --price 1 2", ANNOTATION, "max_cost"),
        mode(f"x --endpoint u --model m --output y {PARTS}", ANNOTATION),
        mode("--check x", "split subset"),
        mode("--finish --output y"),
        mode("--review --output y", "port"),
    ],
    "inspect": [
        mode("x", DRAWN),
        mode("x --draw first", DRAWN, "output"),
        mode("x --config c", DRAWN, "budget"),
        mode("TRACE", "output animate"),
        mode("--screen x", "output words widgets icons"),
    ],
    "recipes": [mode("", "name"), mode("forkme", "output")],
    "train": [mode("--config c", "dry_run"), mode("--config c --dry-run", "gpu gpus mfu")],
    "check": [mode("train --config c")],
    "status": [mode("x")],
    "merge": [mode("x --output y", "samples shards", BASES)],
    "card": [mode("x --scores y", CARD)],
    "serve-check": [mode("x --endpoint u", "model steps shards", BASES)],
    "evaluate": [
        mode("--checkpoint r --shards s --output y", SCORING, "benchmark"),
        mode("--agent a --benchmark b --output y", SCORING, "shards"),
        mode("--endpoint u --agent.model m --shards s --output y", SCORING, "benchmark"),
        mode(f"--checkpoint r --shards s --output y {PARTS}", SCORING, "benchmark"),
        mode(
            "--online --checkpoint r --output y",
            f"tasks seed task_set split scale long_screens workers controls elements {BASES}",
        ),
        mode("--finish --output y"),
    ],
    "act": [
        mode("--agent a --device simulated:general/test/7", ACTING, "confirm long_screens"),
        mode("--checkpoint r --device simulated:general/test/7", ACTING, "confirm long_screens"),
        mode("--endpoint u --agent.model m --device adb --goal g", ACTING, "confirm long_screens"),
        mode("--agent a --device simulated:general/test/7 --confirm", ACTING),
    ],
    "record": [
        mode("--trace t --output y", "goal app elements"),
        mode("--device adb --goal g --output y", "app elements"),
        mode("--device simulated:general/test/7 --output y", "goal app elements port"),
    ],
    "demonstrations": [mode("x", "show remove table"), mode("x --nearest g --encoder words")],
    "score": [
        mode("x", "dialect against groups output"),
        mode("x --report p.html --shards s", "dialect against groups output episodes"),
        mode("x --report p.html --shards s --against o", "dialect groups output episodes flips"),
        mode("x.csv --shards s", f"dialect against groups output report {FOREIGN}"),
        mode("x --against o.parquet --shards s", f"dialect groups output report {FOREIGN}"),
    ],
    "transfer": [mode("x --output y")],
    "chats": [mode("x --agent a --output y.jsonl", "split limit elements")],
    "compare": [
        mode("x --output y", "shards seeds quick gpus list_stages stage report"),
        mode("x --output y --shards s", "benchmark seeds quick gpus list_stages stage report"),
        mode("x --output y --endpoint u --model m", "shards seeds quick gpus list_stages stage report"),
        mode("x --output y --serve c{port} --model m", "shards seeds quick gpus list_stages stage report"),
        mode("x --output y --list-stages", "shards seeds quick gpus hours"),
    ],
    "view": [mode("x", "agent port")],
    "demo": [mode("", "output quick")],
    "doctor": [mode("", "only json")],
}

VALUES = {
    "--size": ["448x208"],
    "--mixture": ["general=0.5"],
    "--task": ["general/test/7"],
    "--device": ["simulated"],
    "--elements": ["read"],
    "--max-bad-fraction": ["0.5"],
    "--mfu": ["0.5"],
    "--price": ["1", "2"],
    "--seeds": ["0", "1"],
    "--html": ["x.html"],
    "--report": ["x.html"],
    "--animate": ["x.gif"],
    "--animation": ["x.gif"],
}
"""Values of the options that take neither a number nor any text."""

ENDINGS = {"chats": ".jsonl", "inspect": ".png", "score": ".json"}
"""What --output of these commands must end in."""


ROOT = make_parser()
PARSERS = next(action.choices for action in ROOT._actions if isinstance(action, argparse._SubParsersAction))


def options_of(command):
    return [action for action in PARSERS[command]._actions if action.dest != "help"]


def words_of(action, command):
    """The option on a command line, with a value."""
    option = action.option_strings[-1] if action.option_strings else None
    if action.nargs == 0:
        return [option]
    if option == "--output" and command in ENDINGS:
        values = [f"x{ENDINGS[command]}"]
    elif option in VALUES:
        values = VALUES[option]
    elif action.choices is not None:
        values = list(action.choices)[:1]
    elif action.type is None or action.type is Path or action.type.__name__ == "shipped_file":
        values = ["x"]
    else:
        values = ["3"]
    return values if option is None else [option, *values]


@pytest.fixture
def refusal(tmp_path, monkeypatch, capsys):
    """Takes a command and its arguments; the message that refuses them, or None if the command would run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "TRACE").mkdir()
    (tmp_path / "TRACE" / "trace.json").write_text("{}")
    monkeypatch.setattr("vlm_agent.cli.parser.make_parser", lambda word="": ROOT)
    for parser in PARSERS.values():
        monkeypatch.setitem(parser._defaults, "run", lambda options: 0)

    def refuse(command, words):
        try:
            assert main([command, *words]) == 0
        except SystemExit as leaving:
            assert leaving.code == USAGE
            return capsys.readouterr().err.splitlines()[-1]
        return None

    return refuse


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("phone", []),
        ("record", ["--device", "simulated:general/test/7", "--output", "y"]),
        ("view", ["x"]),
        ("annotate", ["--review", "--output", "y"]),
    ],
)
def test_a_port_is_0_to_65535(command, words, refusal):
    for number in ("0", "65535"):
        assert refusal(command, [*words, "--port", number]) is None
    for number in ("65536", "-1", "http", "1e3"):
        assert f"'{number}' is not a port" in refusal(command, [*words, f"--port={number}"])


def test_every_command_is_listed():
    assert sorted(MODES) == sorted(name.replace("_", "-") for name in COMMANDS)


CASES = [(command, mode) for command, modes in MODES.items() for mode in modes]


@pytest.mark.parametrize(("command", "mode"), CASES, ids=[f"{command} {mode.line}" for command, mode in CASES])
def test_what_has_no_effect_in_this_situation_is_refused_and_nothing_else(command, mode, refusal):
    base = mode.line.split()
    assert refusal(command, base) is None
    in_base = PARSERS[command].parse_known_args(base)[0].chosen
    found = {}
    for action in options_of(command):
        if action.dest not in in_base:
            found[action.dest] = refusal(command, [*base, *words_of(action, command)])
    assert {name for name, message in found.items() if message is None} == mode.accepted - in_base
    for message in filter(None, found.values()):
        assert message.startswith(f"vlm-agent {command}: error: ")


READ_TOGETHER = dict.fromkeys(BASES.split(), "places") | dict.fromkeys(("shard_index", "shard_count"), "array_task")
"""Option → the function that reads it with others."""


@pytest.mark.parametrize("command", MODES)
def test_every_option_is_accepted_somewhere_and_read_by_its_command(command):
    lines = " ".join(mode.line for mode in MODES[command])
    accepted = frozenset().union(*(mode.accepted for mode in MODES[command]))
    files = (command.replace("-", "_"), "agent_options", "foreign_options")
    source = "".join(inspect.getsource(importlib.import_module(f"vlm_agent.cli.{name}")) for name in files)
    for action in options_of(command):
        is_used = not action.option_strings or action.option_strings[-1] in lines
        assert is_used or action.dest in accepted, f"{command} {action.option_strings} is accepted in no mode"
        name = READ_TOGETHER.get(action.dest, action.dest)
        assert re.search(rf'options\.{name}\b|"{name}"|\b{name}\(options', source), f"{command} does not read {name}"


@pytest.mark.parametrize(
    ("command", "line", "words"),
    [
        ("convert", "--input x --output y --quality 90", "--quality is for --image-format jpeg; png is lossless"),
        ("convert", "--input x --output y --multiple=28", "--multiple is for downscaled screens: add --max-pixels N"),
        ("convert", "--finish --output y --quality 9 --splits s", "from --output; remove --quality, --splits"),
        ("evaluate", "--finish --output y --elements read --limit 3", "from --output; remove --elements, --limit"),
        ("score", "x --episodes 40", "--episodes is for the page: add --report FILE"),
        ("train", "--config c --gpus 8", "--gpus is for --dry-run"),
        ("annotate", "--check x --limit 3", "--check takes SHARDS, --split and --subset; remove --limit"),
    ],
)
def test_a_refusal_names_the_option_and_the_condition_even_for_a_value_that_is_the_default(
    command, line, words, refusal
):
    assert words in refusal(command, line.split())


def test_a_value_that_looks_like_an_option_is_none(refusal):
    assert refusal("score", ["x", "--report", "p.html", "--shards", "s", "--groups=--episodes"]) is None


def test_unused_texts_of_coat_are_refused():
    from vlm_agent.agents.loading import AgentError, agent_settings

    with pytest.raises(AgentError, match="texts: model is for mode coat; mode cot reads none"):
        agent_settings("eval/agents/coat.yaml", overrides={"mode": "cot", "texts": "model"})
    assert agent_settings("eval/agents/coat.yaml", overrides={"mode": "cot"}).mode == "cot"
