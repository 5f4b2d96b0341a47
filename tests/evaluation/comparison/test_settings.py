"""Comparison files: what is refused, and that those of eval/comparisons/ are comparisons."""

from pathlib import Path

import pytest
import yaml

from vlm_agent.agents.loading import agent_settings
from vlm_agent.evaluation.comparison.settings import ComparisonError, Endpoint, read_comparison
from vlm_agent.evaluation.comparison.stages import Layout, Stages
from vlm_agent.recipe.yaml_file import find_shipped

SHIPPED = sorted((Path(__file__).parents[3] / "eval/comparisons").glob("*.yaml"))
SIZES = {"simulated": 4, "episodes": 2, "tasks": 1}
TWO = {"one": {"name": "One", "run": "runs/one"}, "two": {"name": "Two", "run": "runs/two"}}
CONTENT = {"name": "n", "benchmark": "eval/simulated_phone.yaml", "sizes": SIZES, "quick": SIZES, "agents": TWO}


def written(tmp_path: Path, **changes) -> Path:
    path = tmp_path / "comparison.yaml"
    path.write_text(yaml.safe_dump(CONTENT | changes))
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_comparison_names_recipes_and_agent_files_that_exist(path):
    comparison = read_comparison(path, {})
    origins = [agent.recipe or agent.agent for agent in comparison.agents.values()]
    assert all(origin is not None and (path.parents[2] / origin).is_file() for origin in origins)


def test_five_systems_are_of_five_papers():
    agents = read_comparison(SHIPPED[0].with_name("five_systems.yaml"), {}).agents.values()
    papers = {"Smartphone Assistant", "Auto-UI", "Android in the Zoo", "D-PoT", "VisionTasker"}
    assert {agent.paper for agent in agents} == papers


@pytest.mark.parametrize("quick", [False, True], ids=["real", "quick"])
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_comparison_has_a_plan_whose_recipes_and_agents_have_valid_settings(path, quick, tmp_path):
    comparison = read_comparison(path, {})
    shards = tmp_path / "shards"
    layout = Layout(tmp_path / "out", None if quick else shards)
    endpoint = None if quick else Endpoint("", "m", "serve --port {port}")
    stages = Stages(comparison, layout, quick, endpoint, gpus=8)
    names = [stage.name for stage in stages]  # its recipes are read with their keys
    for key, agent in comparison.agents.items():
        assert f"offline-{key}-0" in names
        if agent.agent is not None:
            agent_settings(str(find_shipped(agent.agent)), overrides=stages.overrides_of(agent))
            assert agent.served, "rows of a table ask the same model"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_file_that_a_shipped_comparison_names_is_found_from_any_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = find_shipped(Path("eval/comparisons") / path.name)
    assert named == path
    comparison = read_comparison(named, {})
    origins = [agent.recipe or agent.agent for agent in comparison.agents.values()]
    benchmarks = [file for file in (comparison.benchmark, comparison.simulated_benchmark) if file is not None]
    served = [] if comparison.served is None else [comparison.served.recipe]
    assert benchmarks
    for file in (*benchmarks, *served, *origins):
        assert find_shipped(file).is_file(), file


def test_overrides_of_an_agent_file_may_name_the_folder_of_the_comparison(tmp_path):
    overrides = {
        "readers": {"text": {"name": "rapidocr", "cache": "{output}/ocr"}},
        "plans": ["{output}/p", "{shards}"],
        "concurrency": 2,
    }
    asks = {"name": "Asks", "agent": "a.yaml", "overrides": overrides}
    comparison = read_comparison(written(tmp_path, agents=TWO | {"asks": asks}), {})
    sizes = comparison.sizes.model_copy(update={"prompted": {"model": "tiny"}})
    changes = comparison.agents["asks"].agent_overrides(Path("out"), Path("shards"), sizes)
    cached = {"text": {"name": "rapidocr", "cache": "out/ocr"}}
    assert changes == {"model": "tiny", "concurrency": 2, "readers": cached, "plans": ["out/p", "shards"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": []}, "seeds: name at least one seed, each once"),
        ({"seeds": [1, 1]}, "seeds: name at least one seed, each once"),
        ({"agents": {"one": TWO["one"]}}, "at least two agents"),
        (
            {"agents": TWO | {"two": TWO["two"] | {"recpie": "x"}}},
            "unknown key agents.two.recpie; did you mean agents.two.recipe?",
        ),
        ({"agents": TWO | {"Two ones": TWO["one"]}}, "use lower-case letters, digits and _"),
        ({"agents": TWO | {"served": TWO["one"]}}, "served is the name of the model that the comparison makes"),
        ({"agents": TWO | {"two": {"name": "Two"}}}, "name exactly one of run, recipe and agent"),
        (
            {"agents": TWO | {"two": {"name": "Two", "agent": "a.yaml", "served": True}}},
            "the file has no section served",
        ),
        ({"agents": TWO | {"two": TWO["two"] | {"overrides": {"a": 1}}}}, "a finished run has no overrides"),
        ({"agents": TWO | {"two": TWO["two"] | {"scale": 0}}}, "agents.two.scale"),
        (
            {"agents": TWO | {"two": TWO["two"] | {"controls": ["no_history", "bogus"]}}},
            "agents.two: .*control 'bogus' is unknown; choose from grey_screens, no_history, shuffled_results",
        ),
        (
            {"seeds": [0, 1], "agents": TWO | {"two": {"name": "Two", "recipe": "r.yaml", "overrides": {"seed": 4}}}},
            "agents.two: overrides.seed 4 is that of all seeds; write {seed} in it",
        ),
        ({"episods": 3}, "unknown key episods"),
    ],
)
def test_what_cannot_be_compared_is_one_line_with_the_key(tmp_path, changes, message):
    with pytest.raises(ComparisonError, match=message) as error:
        read_comparison(written(tmp_path, **changes), {})
    assert "comparison.yaml: " in str(error.value)


def test_a_file_of_two_runs_needs_neither_quick_sizes_nor_a_benchmark_nor_demonstrations(tmp_path):
    path = tmp_path / "comparison.yaml"
    content = {"name": "n", "sizes": {"episodes": 2, "tasks": 1}, "agents": TWO}
    path.write_text(yaml.safe_dump(content))
    comparison = read_comparison(path, {})
    on_shards = Layout(tmp_path / "out", user_shards=tmp_path / "shards")
    assert [stage.words[0] for stage in Stages(comparison, on_shards)] == ["evaluate"] * 4
    with pytest.raises(ComparisonError, match=r"sizes\.simulated is missing: .* or add --shards"):
        list(Stages(comparison, Layout(tmp_path / "out")))
    with pytest.raises(ComparisonError, match="has no section quick"):
        list(Stages(comparison, on_shards, quick=True))
