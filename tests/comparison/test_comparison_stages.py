"""The stages of a comparison are commands that a user could type, in an order in which each has what it reads."""

from pathlib import Path

import pytest

from vlm_agent.cli import _parser
from vlm_agent.comparison.settings import SERVED, read_comparison
from vlm_agent.comparison.stages import OFFLINE, ONLINE, TRAIN, Layout, Stages

ROOT = Path(__file__).parents[2]
COMPARISON = read_comparison(ROOT / "eval/comparisons/five_systems.yaml", {})


def stages(seeds: tuple[int, ...] = (0,), shards: Path | None = None, endpoint: str | None = None) -> Stages:
    comparison = COMPARISON.model_copy(update={"seeds": list(seeds)})
    return Stages(comparison, comparison.sizes, Layout(Path("out"), shards), endpoint)


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_every_stage_is_a_command(seeds):
    parser = _parser()
    for stage in stages(seeds):
        parser.parse_known_args(stage.words)
    names = [stage.name for stage in stages(seeds)]
    assert len(names) == len(set(names))


def test_every_agent_is_scored_offline_and_online_with_each_seed():
    found = [(stage.kind, *stage.owner) for stage in stages((0, 1)) if stage.kind in (OFFLINE, ONLINE)]
    assert sorted(found) == sorted(
        (kind, key, seed) for kind in (OFFLINE, ONLINE) for key in COMPARISON.agents for seed in (0, 1)
    )


def test_a_stage_comes_after_those_that_write_what_it_reads():
    written: list[str] = []
    for stage in stages():
        output = stage.words[stage.words.index("--output") + 1]
        reads = [word for word in stage.words if word.startswith("out/") and "/agents/" not in word and word != output]
        for path in [*reads, *([] if stage.served is None else [str(stage.served)])]:
            known = any(path == one or path.startswith(f"{one}/") or one.startswith(f"{path}/") for one in written)
            assert known, (stage.name, path)
        written.append(output)


def test_shards_of_the_user_replace_the_simulated_ones():
    (given,) = {
        stage.words[stage.words.index("--shards") + 1] for stage in stages(shards=Path("aitw")) if stage.kind == OFFLINE
    }
    assert given == "aitw"
    assert not {stage.words[0] for stage in stages(shards=Path("aitw"))} & {"simulate", "convert"}


def test_an_endpoint_of_the_user_replaces_the_model_that_is_trained():
    own = list(stages((0, 1), endpoint="http://localhost:1/v1"))
    assert SERVED not in {stage.owner[0] for stage in own if stage.owner is not None}
    assert all(stage.served is None for stage in own)
    prompted = [stage.owner for stage in own if stage.kind == ONLINE and COMPARISON.agents[stage.owner[0]].is_prompted]
    assert {seed for _, seed in prompted} == {0}


def test_quick_sizes_hold_for_every_recipe_also_for_one_with_its_own_steps():
    quick = Stages(COMPARISON, COMPARISON.quick, Layout(Path("out")))
    for stage in quick:
        if stage.kind == TRAIN:
            assert stage.words[stage.words.index("--training.steps") + 1] == "4"
