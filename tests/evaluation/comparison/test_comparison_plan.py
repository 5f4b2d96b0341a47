"""The folder of a comparison accepts more agents and seeds, and refuses what would mix two comparisons."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.tiny import episode, write_shards

from vlm_agent.errors import DatasetError, UserError
from vlm_agent.evaluation.comparison import run
from vlm_agent.evaluation.comparison.settings import Comparison, ComparisonError, Endpoint
from vlm_agent.evaluation.comparison.stages import Layout, Stages

SIZES = {"simulated": 4, "episodes": 2, "tasks": 1}
TRAINED = {"one": {"name": "One", "recipe": "recipes/one.yaml"}, "two": {"name": "Two", "recipe": "recipes/two.yaml"}}
ASKS = {"name": "Asks", "agent": "asks.yaml", "served": True}
OWN = Endpoint("http://localhost:1/v1", "m")


PROMPTED = "agent: endpoint\nendpoint: http://localhost:1/v1\nmodel: m\nmax_tokens: 5\n"
FILES = ("b.yaml", "s.yaml", "asks.yaml", "recipes/one.yaml", "recipes/two.yaml")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """The files that a comparison names, in the working directory; `tmp_path / "out"` is the comparison's."""
    monkeypatch.chdir(tmp_path)
    Path("recipes").mkdir()
    content = {"asks.yaml": PROMPTED, "b.yaml": "name: b\nabout: b\nsource: b\nlimit: 5\n"}
    for name in FILES:
        Path(name).write_text(content.get(name, "training: {steps: 5}\n"))


def stages(output: Path, agents: dict, endpoint: Endpoint | None = None, **changes) -> Stages:
    content = {"name": "n", "benchmark": "b.yaml", "sizes": SIZES, "quick": SIZES, "served": {"recipe": "s.yaml"}}
    return Stages(Comparison(agents=agents, **content | changes), Layout(output), endpoint=endpoint)


@pytest.mark.parametrize("endpoint", [None, OWN])
def test_agents_can_be_added_and_left_out_and_renamed(tmp_path, endpoint):
    run.write_or_verify(stages(tmp_path / "out", TRAINED | {"asks": ASKS}, endpoint))
    more = {"three": {"name": "Three", "run": "runs/three"}, "one": TRAINED["one"] | {"name": "First", "note": "n"}}
    run.write_or_verify(stages(tmp_path / "out", TRAINED | {"asks": ASKS} | more, endpoint, seeds=[0, 1]))
    run.write_or_verify(stages(tmp_path / "out", {"asks": ASKS, "one": TRAINED["one"]}, endpoint))


def test_an_agent_that_was_added_is_compared_from_then_on(tmp_path):
    run.write_or_verify(stages(tmp_path / "out", TRAINED))
    for scale in (2, 3):
        with_three = stages(tmp_path / "out", TRAINED | {"three": TRAINED["one"] | {"scale": scale}})
        if scale == 2:
            run.write_or_verify(with_three)
            continue
        for check in (run.write_or_verify, run.verify):
            with pytest.raises(DatasetError, match=r"the agent three of a comparison.*\n  scale was 2, and is 3"):
                check(with_three)


def test_an_agent_that_prompts_the_served_model_cannot_be_added_because_that_model_learned_from_all_of_them(tmp_path):
    run.write_or_verify(stages(tmp_path / "out", TRAINED | {"asks": ASKS}))
    with pytest.raises(DatasetError, match=r'served_agents was \["asks"\], and is \["also", "asks"\]'):
        run.write_or_verify(stages(tmp_path / "out", TRAINED | {"asks": ASKS, "also": ASKS}))


def test_a_run_that_was_trained_again_is_another_agent(tmp_path):
    agents = TRAINED | {"own": {"name": "Own", "run": "runs/own"}}
    Path("runs/own").mkdir(parents=True)
    with pytest.raises(ComparisonError, match=r"agents\.own\.run: runs/own is not finished"):
        run.write_or_verify(stages(tmp_path / "out", agents))
    Path("runs/own/run.json").write_text("{}")
    for _ in range(2):
        run.write_or_verify(stages(tmp_path / "out", agents))
    Path("runs/own/run.json").write_text('{"commit": "another"}')
    with pytest.raises(
        DatasetError, match=r"the agent own of a comparison.*\n  files.runs/own/run.json was .*, and is "
    ):
        run.write_or_verify(stages(tmp_path / "out", agents))


def test_at_an_endpoint_of_the_user_prompted_agents_can_be_added(tmp_path):
    run.write_or_verify(stages(tmp_path / "out", TRAINED | {"asks": ASKS}, OWN))
    run.write_or_verify(stages(tmp_path / "out", TRAINED | {"asks": ASKS, "also": ASKS}, OWN))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "recipes/one.yaml",
            "the agent one of a comparison.*\n  files.recipes/one.yaml.training.steps was 5, and is 9",
        ),
        ("asks.yaml", "the agent asks of a comparison.*\n  files.asks.yaml.max_tokens was 5, and is 9"),
        ("s.yaml", "  files.s.yaml.training.steps was 5, and is 9"),
        ("b.yaml", "  files.b.yaml.limit was 5, and is 9"),
    ],
)
def test_a_file_that_was_edited_is_another_comparison(tmp_path, name, line):
    agents = TRAINED | {"asks": ASKS}
    run.write_or_verify(stages(tmp_path / "out", agents))
    before = Path(name).read_text()
    Path(name).write_text("# with a comment\n" + before)
    run.write_or_verify(stages(tmp_path / "out", agents))
    Path(name).write_text(before.replace("5", "9"))
    with pytest.raises(DatasetError, match=line):
        run.write_or_verify(stages(tmp_path / "out", agents))


def test_words_and_sizes_that_are_not_used_may_change(tmp_path):
    run.write_or_verify(stages(tmp_path / "out", TRAINED))
    run.write_or_verify(stages(tmp_path / "out", TRAINED, name="m", about="without a slip", quick=SIZES | {"tasks": 2}))
    with pytest.raises(DatasetError, match=r"comparison\.sizes\.tasks was 1, and is 2"):
        run.write_or_verify(stages(tmp_path / "out", TRAINED, sizes=SIZES | {"tasks": 2}))


def test_shards_that_were_converted_again_are_other_data_wherever_the_folder_lies(tmp_path):
    write_shards(tmp_path / "shards", [episode()])

    def command(shards: Path) -> None:
        asked = stages(tmp_path / "out", TRAINED)
        run.write_or_verify(replace(asked, layout=Layout(tmp_path / "out", shards)))

    command(tmp_path / "shards")
    (tmp_path / "shards").rename(tmp_path / "moved")
    command(Path("moved"))
    shutil.rmtree("moved")
    with pytest.raises(DatasetError, match='and is "not converted"'):
        run.verify(replace(stages(tmp_path / "out", TRAINED), layout=Layout(tmp_path / "out", Path("moved"))))
    write_shards(tmp_path / "moved", [episode(), episode(1)])
    with pytest.raises(DatasetError, match="shards was"):
        command(Path("moved"))


def test_a_mistake_in_the_overrides_of_an_agent_file_is_part_of_no_plan(tmp_path):
    wrong = ASKS | {"overrides": {"max_toknes": 3}}
    for check in (run.verify, run.write_or_verify):
        with pytest.raises(UserError, match=r"max_toknes.*max_tokens"):
            check(stages(tmp_path / "out", TRAINED | {"asks": wrong}))
    assert not (tmp_path / "out").exists()
    Path("asks.yaml").write_text("agent: endpoint\n")  # the comparison names the server
    run.write_or_verify(stages(tmp_path / "out", TRAINED | {"asks": ASKS | {"overrides": {"max_tokens": 3}}}))


def test_a_mistake_in_the_benchmark_is_part_of_no_plan(tmp_path):
    Path("b.yaml").write_text("name: b\nabout: b\nsource: b\nlimmit: 3\n")
    for check in (run.verify, run.write_or_verify):
        with pytest.raises(DatasetError, match=r"b\.yaml: unknown key limmit"):
            check(stages(tmp_path / "out", TRAINED))
    assert not (tmp_path / "out").exists()


def test_a_server_may_move_between_commands(tmp_path):
    for number in (1, 2):
        Path("asks.yaml").write_text(
            f"agent: endpoint\nendpoint: http://gpu0{number}/v1\nconcurrency: {number}\nmodel: m\n"
        )
        run.write_or_verify(stages(tmp_path / "out", TRAINED | {"asks": ASKS}))


def test_a_file_that_is_missing_is_named(tmp_path):
    Path("asks.yaml").unlink()
    with pytest.raises(ComparisonError, match=r"asks\.yaml cannot be read"):
        run.write_or_verify(stages(tmp_path / "out", TRAINED | {"asks": ASKS}))
    assert not (tmp_path / "out").exists()


def test_verifying_writes_nothing(tmp_path):
    run.verify(stages(tmp_path / "out", TRAINED))
    assert not (tmp_path / "out").exists()
    run.write_or_verify(stages(tmp_path / "out", TRAINED))
    run.verify(stages(tmp_path / "out", TRAINED | {"three": TRAINED["one"]}))
    assert sorted(path.name for path in (tmp_path / "out/plans").iterdir()) == ["one", "two"]


def test_a_refused_command_adds_no_agent(tmp_path):
    run.write_or_verify(stages(tmp_path / "out", TRAINED))
    changed = {"a_new": TRAINED["one"], **TRAINED, "two": TRAINED["two"] | {"scale": 2}}
    with pytest.raises(DatasetError, match="the agent two of a comparison"):
        run.write_or_verify(stages(tmp_path / "out", changed))
    assert sorted(path.name for path in (tmp_path / "out/plans").iterdir()) == ["one", "two"]
