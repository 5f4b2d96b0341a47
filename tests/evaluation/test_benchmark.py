"""Benchmark files: those in eval/ can be read, and a wrong one is explained."""

import json
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from vlm_agent.cli import USAGE, main
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.benchmark import read_benchmark, read_groups
from vlm_agent.evaluation.offline import run as offline
from vlm_agent.recipe.yaml_file import find_shipped

FOLDER = Path(__file__).parents[2] / "eval"
FILES = sorted(FOLDER.glob("*.yaml"))
DRAWN = {"d_pot", "d_pot_ablations", "d_pot_general", "d_pot_install", "d_pot_others"}
"""Draws from the standard split."""
LEVELS = {"androidcontrol_high", "androidcontrol_low"}
"""Two levels of instruction over the same shards."""

VALID = "name: n\nabout: a\nsource: s\nshards: shards/x\n"


def test_the_published_benchmarks_are_there():
    unseen = {f"aitw_unseen_{kind}" for kind in ("android_version", "domain", "subject", "verb")}
    others = {"aitw_standard", "aitw_auto_ui", "aitw_instruction_wise", "aitz", "simulated_phone", "gui_odyssey"}
    assert {path.stem for path in FILES} == unseen | others | DRAWN | LEVELS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_benchmark_has_a_description_a_source_and_its_commands(path):
    recipe = read_benchmark(path, {})
    assert recipe.about
    assert recipe.source
    commands = _commands(path)
    assert f"--benchmark eval/{path.name}" in commands[-1]
    assert f"--output {recipe.shards}" in commands[-2]


def test_aitz_is_also_scored_by_the_rules_of_its_paper():
    scorers = read_benchmark(FOLDER / "aitz.yaml", {}).scorers
    assert scorers == ("official", "strict", "agentcpm", "coat_point", "coat_box")


def test_no_two_have_the_same_name_and_only_draws_and_levels_share_shards():
    recipes = [read_benchmark(path, {}) for path in FILES]
    assert len({recipe.name for recipe in recipes}) == len(recipes)
    assert len({recipe.shards for recipe in recipes}) == len(recipes) - len(DRAWN) - (len(LEVELS) - 1)


def _commands(path: Path) -> list[str]:
    header = path.read_text(encoding="utf-8").replace(" \\\n#      ", "")
    return re.findall(r"^#     (vlm-agent .*)$", header, re.MULTILINE)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (VALID + "spilt: test", "unknown key spilt; did you mean split?"),
        ("name: n", "about: Field required"),
        (VALID + "split: tset", "split 'tset' is unknown; choose one of train, validation, test"),
        (VALID + "dialect: mine", "dialect 'mine' is unknown"),
        (VALID + "further_dialects: [mine]", "dialect 'mine' is unknown"),
        (VALID + "limit: 0", "limit: "),
        ("[]", "keys and values"),
        ("{1: 2}", "keys and values"),
        ("{", "not valid YAML"),
    ],
)
def test_an_invalid_file_is_an_error_with_the_reason(tmp_path, content, words):
    path = tmp_path / "x.yaml"
    path.write_text(content)
    with pytest.raises(DatasetError, match=re.escape(words)) as refused:
        read_benchmark(path, {})
    assert str(path) in str(refused.value)


def test_groups_are_read_from_their_file(tmp_path):
    path = tmp_path / "groups.json"
    path.write_text('{"easy": ["1", "2"], "hard": []}')
    assert read_groups(path) == {"easy": ["1", "2"], "hard": []}
    for content in ("[]", '{"easy": "1"}', "{", '{"easy": [["1"]]}', '{"easy": [1.5]}'):
        path.write_text(content)
        with pytest.raises(DatasetError, match=re.escape(str(path))):
            read_groups(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"nowhere.yaml cannot be read"):
        read_benchmark(tmp_path / "nowhere.yaml", {})


@pytest.fixture
def asked(monkeypatch):
    """What `vlm-agent evaluate` asks for, instead of doing it."""
    calls = []
    monkeypatch.setattr(offline, "evaluate", lambda *arguments, **options: calls.append((*arguments, options)))
    monkeypatch.setattr(offline, "finish", lambda *arguments: calls.append(arguments))
    return calls


def test_options_override_the_benchmark(asked, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(VALID + "split: validation\nlimit: 5\ndialect: agentcpm\n")
    for more in ("", "--limit 7 --shards other --split test"):
        assert main(shlex.split(f"evaluate --checkpoint run --benchmark {path} --output out {more}")) == 0
    benchmarks = [call[1] for call in asked]
    assert [(str(one.shards), one.split, one.limit) for one in benchmarks] == [
        ("shards/x", "validation", 5),
        ("other", "test", 7),
    ]
    assert {(one.name, one.dialect) for one in benchmarks} == {("n", "agentcpm")}


def test_groups_of_a_benchmark_lie_with_the_shards_or_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.yaml"
    path.write_text(VALID + "groups: groups.json\n")
    with pytest.raises(DatasetError, match=r"groups: neither other/groups\.json nor groups\.json exists; name"):
        read_benchmark(path, {"shards": Path("other")}).episode_groups()
    (tmp_path / "groups.json").write_text('{"here": ["1"]}')
    assert read_benchmark(path, {"shards": Path("other")}).episode_groups() == {"here": ["1"]}
    (tmp_path / "other").mkdir()
    (tmp_path / "other/groups.json").write_text('{"beside": ["1"]}')
    assert read_benchmark(path, {"shards": Path("other")}).episode_groups() == {"beside": ["1"]}
    named = {"shards": Path("other"), "groups": Path("groups.json")}
    assert read_benchmark(path, named).episode_groups() == {"here": ["1"]}, "an option is a path of the working folder"


def test_the_simulated_phones_groups_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, shards = tmp_path / "data", tmp_path / "elsewhere/shards"
    assert main(f"simulate --output {data} --episodes 3 --workers 1".split()) == 0
    words = (
        f"convert --input {data} --output {shards} --splits {data}/splits.json --groups {data}/groups.json --workers 1"
    )
    assert main(words.split()) == 0
    benchmark = read_benchmark(find_shipped(Path("eval/simulated_phone.yaml")), {"shards": shards})
    assert benchmark.episode_groups() == json.loads((data / "groups.json").read_text())


def test_an_endpoint_replaces_a_checkpoint(asked):
    command = (
        "evaluate --endpoint http://localhost:8000 --agent.model vlm --agent.past_screens 0 --shards s --output out"
    )
    assert main(shlex.split(command)) == 0
    settings, benchmark, output, console, options = asked[0]
    assert (settings.endpoint, settings.model, settings.past_screens) == ("http://localhost:8000", "vlm", 0)
    assert (benchmark.split, str(output), options["task"].count) == ("test", "out", 1)
    assert isinstance(console, Console)


def test_a_job_array_and_its_end(asked):
    command = "evaluate --checkpoint run --shards s --output out"
    main(
        shlex.split(
            f"{command} --shard-index 3 --shard-count 8 --agent.bf16 true --agent.batch_tokens 99 --controls none"
        )
    )
    main(["evaluate", "--finish", "--output", "out"])
    settings, *_, options = asked[0]
    assert (settings.bf16, settings.batch_tokens) == (True, 99)
    assert (options["task"].index, options["task"].count) == (3, 8)
    assert options["controls"] is False
    assert str(asked[1][0]) == "out"


def test_controls_are_all_by_default_or_chosen_by_name(asked):
    command = "evaluate --checkpoint run --shards s --output out"
    for words in ("", "--controls grey_screens no_history"):
        main(shlex.split(f"{command} {words}"))
    assert [options["controls"] for *_, options in asked] == [True, ["grey_screens", "no_history"]]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("--shards s", "select one agent"),
        ("--checkpoint run --endpoint http://h --agent.model m --shards s", "select one agent"),
        ("--endpoint http://h --shards s", "--endpoint needs --agent.model NAME"),
        ("--checkpoint run --model m --shards s", "unknown option --model"),
        ("--checkpoint run", "--shards is missing"),
        ("--checkpoint run --shards s --shard-index 1", "--shard-index and --shard-count must be used together"),
        ("--agent run --checkpoint run --shards s", "select one agent"),
        ("--agent run --endpoint http://h --shards s", "select one agent"),
        ("--agent a.yaml --checkpoint run --shards s", "select one agent"),
        ("--finish --checkpoint run", "--finish reads"),
        ("--finish --agent.batch_tokens 9", "remove --agent.batch_tokens"),
        ("--checkpoint run --shards s --past-screens 1", "unknown option --past-screens; did you mean"),
    ],
)
def test_incompatible_options_are_refused(asked, capsys, words, printed):
    with pytest.raises(SystemExit) as left:
        main(["evaluate", "--output", "out", *shlex.split(words)])
    assert left.value.code == USAGE
    assert printed in capsys.readouterr().err
    assert not asked


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("--endpoint http://h --agent.model m --agent.bf16 true", "--endpoint: unknown key bf16; did you mean"),
        ("--endpoint http://h --agent.model m --agent.max_token 9", "unknown key max_token; did you mean max_tokens?"),
        ("--checkpoint run --agent.past_screens 1", "--agent: unknown key past_screens; did you mean"),
        ("--endpoint localhost --agent.model m", "not the URL of an endpoint"),
    ],
)
def test_settings_of_another_kind_of_agent_are_refused(asked, capsys, words, printed):
    assert main(["evaluate", "--output", "out", "--shards", "s", *shlex.split(words)]) == 1
    assert printed in capsys.readouterr().err
    assert not asked


def test_the_subsets_of_a_benchmark_are_those_of_its_episodes():
    ids, subsets = ["1", "2", "3", "4"], ["general", "install", "general", "single"]
    some = read_benchmark(FOLDER / "aitw_standard.yaml", {"subsets": ["install", "single"]})
    assert some.episode_indices(ids, subsets) == [1, 3]
    assert read_benchmark(FOLDER / "aitw_standard.yaml", {}).episode_indices(ids, subsets) == [0, 1, 2, 3]


@pytest.mark.parametrize(("limit", "chosen"), [(1, [0]), (2, [0, 3]), (6, list(range(6))), (9, list(range(6)))])
def test_a_limit_scores_episodes_spread_over_the_split_and_at_most_all(limit, chosen):
    some = read_benchmark(FOLDER / "aitw_standard.yaml", {"limit": limit})
    assert some.episode_indices(list("abcdef"), ["general"] * 6) == chosen


def test_only_keys_that_draw_episodes_are_part_of_the_draw():
    assert read_benchmark(FOLDER / "aitw_standard.yaml", {}).draw == {}
    drawn = {"per_subset": 20, "subsets": [], "seed": 0}
    assert read_benchmark(FOLDER / "aitw_standard.yaml", {"per_subset": 20}).draw == drawn
    assert read_benchmark(FOLDER / "aitw_standard.yaml", {"subsets": ["install"]}).draw["subsets"] == ["install"]


def test_the_episodes_of_os_atlas_steps_of_androidcontrol_are_a_group():
    ((name, episodes),) = read_groups(Path(__file__).parents[2] / "eval/androidcontrol_7708.json").items()
    assert name == "7708 steps" and len(set(episodes)) == len(episodes) == 1543 - 131
