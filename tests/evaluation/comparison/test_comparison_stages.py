"""The stages of a comparison are commands that a user could type, in an order in which each has what it reads."""

from pathlib import Path

import pytest

from vlm_agent.cli.parser import make_parser
from vlm_agent.errors import RecipeError
from vlm_agent.evaluation.comparison.settings import SERVED, Contestant, Endpoint, read_comparison
from vlm_agent.evaluation.comparison.stages import OFFLINE, ONLINE, TRAIN, Layout, Stage, Stages

ROOT = Path(__file__).parents[3]
COMPARISON = read_comparison(ROOT / "eval/comparisons/five_systems.yaml", {})
REINFORCEMENT = read_comparison(ROOT / "eval/comparisons/reinforcement.yaml", {"seeds": [0, 1]})


def stages(seeds: tuple[int, ...] = (0,), shards: Path | None = None, endpoint: Endpoint | None = None) -> Stages:
    comparison = COMPARISON.model_copy(update={"seeds": list(seeds)})
    return Stages(comparison, Layout(Path("out"), shards), endpoint=endpoint)


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_every_stage_is_a_command(seeds):
    parser = make_parser()
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


def test_an_agent_that_reads_elements_learns_from_chats_that_read_them():
    agent = {"name": "Reads", "agent": "eval/agents/planner_d_pot.yaml", "served": True, "reads": True}
    found = Stages(COMPARISON.model_copy(update={"agents": {"reads": Contestant(**agent)}}), Layout(Path("out")))
    words = {stage.name: " ".join(stage.words) for stage in found}
    assert all("--elements read" in words[f"{kind}-reads-0"] for kind in ("chats", "offline", "online"))


def needs(*arguments) -> dict[str, set[str]]:
    return {stage.name: {needed.name for needed in needed} for stage, needed in stages(*arguments).with_needs()}


def test_a_stage_needs_those_that_write_what_it_reads_and_agents_do_not_need_each_other():
    features = "features-phone_vlm_tiny_patches"
    found = needs((0, 1))
    assert found["simulate"] == set()
    assert found["train-llama_vit-0"] == found["chats-d_pot-1"] == found[features] == {"convert"}
    assert found["train-auto_ui-0"] == found["train-auto_ui-1"] == {"convert", features}
    assert found["offline-llama_vit-1"] == {"simulate", "convert", "train-llama_vit-1"}
    assert found["online-llama_vit-1"] == {"train-llama_vit-1"}
    assert found["train-served-1"] == {"chats-d_pot-1", "chats-vision_tasker-1"}
    assert found["online-d_pot-1"] == {"train-served-1"}
    assert found["offline-d_pot-0"] == {"simulate", "convert", "train-served-0"}


def test_an_agent_that_reads_pixels_has_the_same_demonstrations_and_tasks_on_larger_screens():
    found, words = needs((0, 1)), {stage.name: " ".join(stage.words) for stage in stages((0, 1))}
    assert words["simulate_x2"].replace("aitw_x2", "aitw").replace(" --scale 2", "") == words["simulate"]
    assert found["chats-vision_tasker-1"] == {"convert_x2"}
    assert found["offline-vision_tasker-0"] == {"simulate", "convert_x2", "train-served-0"}
    assert "--groups out/data/aitw/groups.json" in words["offline-vision_tasker-0"]
    assert "--scale 2" in words["online-vision_tasker-0"]
    assert not any("_x2" in one or "--scale" in one for name, one in words.items() if "llama_vit" in name)
    of_user = [" ".join(stage.words) for stage in stages(shards=Path("aitw"))]
    assert not any("_x2" in one for one in of_user) and sum("--scale 2" in one for one in of_user) == 1


def test_on_shards_of_the_user_trainings_need_nothing():
    found = needs((0,), Path("out"))  # a folder that contains the comparison's, as "." may
    assert found["train-llama_vit-0"] == found["train-qwen_vl-0"] == set()
    assert found["online-llama_vit-0"] == {"train-llama_vit-0"}


def test_shards_of_the_user_have_their_own_benchmark_or_none():
    def offline(layout: Layout) -> list[tuple[str, ...]]:
        return [stage.words for stage in Stages(COMPARISON, layout) if stage.kind == OFFLINE]

    assert all("eval/simulated_phone.yaml" in " ".join(words) for words in offline(Layout(Path("out"))))
    assert not any("--benchmark" in words for words in offline(Layout(Path("out"), Path("aitw"))))
    named = offline(Layout(Path("out"), Path("aitw"), Path("eval/aitw_standard.yaml")))
    assert all(words[words.index("--benchmark") + 1].endswith("eval/aitw_standard.yaml") for words in named)


def test_stages_that_may_run_at_once_write_different_agent_files():
    prompted = [stage for stage in stages((0, 1)) if stage.prompts]
    files = [stage.words[stage.words.index("--agent") + 1] for stage in prompted]
    assert len(set(files)) == len(prompted) == 12


def of_sizes(**sizes) -> list[Stage]:
    changed = COMPARISON.sizes.model_copy(update=sizes)
    return list(Stages(COMPARISON.model_copy(update={"sizes": changed}), Layout(Path("out"))))


def test_a_command_that_serves_runs_beside_each_stage_that_asks_it_on_the_gpus_of_a_training():
    served = list(Stages(COMPARISON, Layout(Path("out")), endpoint=Endpoint("", "m", "serve --port {port}"), gpus=4))
    assert {stage.served for stage in served if stage.prompts} == {"serve --port {port}"}
    assert {stage.gpus for stage in served if stage.prompts or stage.kind == TRAIN} == {4}
    assert not any(SERVED in stage.name or "chats" in stage.name for stage in served)


def test_without_tasks_there_is_no_online_stage_and_without_episodes_no_limit():
    found = of_sizes(tasks=0, episodes=None)
    assert {stage.kind for stage in found} == {"", TRAIN, OFFLINE}
    assert not any("--limit" in stage.words for stage in found if stage.kind == OFFLINE)


def test_a_recipe_of_the_sizes_is_that_of_every_agent():
    trained = [stage for stage in of_sizes(recipe=Path("recipes/text_tiny.yaml")) if stage.kind == TRAIN]
    recipes = {stage.name: Path(stage.words[2]).name for stage in trained}
    assert recipes.pop(f"train-{SERVED}-0") == "text_chats_tiny.yaml"
    assert set(recipes.values()) == {"text_tiny.yaml"}


def test_a_served_recipe_that_reads_no_chats_is_trained_on_the_demonstrations():
    served = COMPARISON.served.model_copy(update={"recipe": Path("recipes/text_tiny.yaml")})
    found = list(Stages(COMPARISON.model_copy(update={"served": served}), Layout(Path("out"))))
    assert not [stage.name for stage in found if stage.name.startswith("chats")]
    (training,) = [stage for stage in found if stage.name == f"train-{SERVED}-0"]
    assert "out/data/shards" in training.words


def test_stages_in_which_a_model_runs_need_a_gpu():
    on_cpus = {stage.name for stage in stages() if not stage.gpus}
    data = {"simulate", "convert", "simulate_x2", "convert_x2"}
    assert on_cpus == data | {"chats-d_pot-0", "chats-vision_tasker-0"}


def test_shards_of_the_user_replace_the_simulated_ones():
    (given,) = {
        stage.words[stage.words.index("--shards") + 1] for stage in stages(shards=Path("aitw")) if stage.kind == OFFLINE
    }
    assert given == "aitw"
    assert not {stage.words[0] for stage in stages(shards=Path("aitw"))} & {"simulate", "convert"}


def test_an_endpoint_of_the_user_replaces_the_model_that_is_trained():
    own = list(stages((0, 1), endpoint=Endpoint("http://localhost:1/v1", "m")))
    assert SERVED not in {stage.owner[0] for stage in own if stage.owner is not None}
    assert all(stage.served is None for stage in own)
    prompted = [stage.owner for stage in own if stage.kind == ONLINE and COMPARISON.agents[stage.owner[0]].is_prompted]
    assert {seed for _, seed in prompted} == {0}


def test_seeds_that_are_added_repeat_no_agent_that_has_none():
    own = Endpoint("http://localhost:1/v1", "m")
    first, added = ({stage.name for stage in stages(seeds, endpoint=own)} for seeds in ((0,), (1, 2)))
    prompted = {name for name in added for key, agent in COMPARISON.agents.items() if agent.is_prompted and key in name}
    assert prompted and prompted <= first


def test_an_adapter_is_merged_before_it_is_served_and_a_whole_model_is_not():
    assert COMPARISON.served is not None
    adapted = COMPARISON.served.model_copy(update={"overrides": {"model.train.language_model": "lora"}})
    found = Stages(COMPARISON.model_copy(update={"served": adapted}), Layout(Path("out")))
    needed = {stage.name: {one.name for one in needs} for stage, needs in found.with_needs()}
    assert needed["merge-served-0"] == {"train-served-0"} and needed["online-d_pot-0"] == {"merge-served-0"}
    merge = next(stage for stage in found if stage.name == "merge-served-0")
    assert merge.words == ("merge", "out/runs/served_0", "--output", "out/merged/served_0")
    assert not any("merge" in stage.name for stage in stages())
    # `merge` refuses a folder that holds anything, as after a kill between its end and the record of it.
    assert merge.anew == merge.output


def test_a_stage_needs_the_demonstrations_that_its_agent_file_names():
    agent = {"name": "References", "agent": "eval/agents/planner_d_pot.yaml", "served": True}
    agent["overrides"] = {"references": {"shards": "{shards}"}}
    comparison = COMPARISON.model_copy(update={"agents": {"one": Contestant(**agent)}})
    found = Stages(comparison, Layout(Path("out_für")), endpoint=Endpoint("http://localhost:1/v1", "m"))
    needed = {stage.name: [one.name for one in needs] for stage, needs in found.with_needs()}
    assert needed["online-one-0"] == ["convert"]


def test_quick_sizes_hold_for_every_recipe_also_for_one_with_its_own_steps():
    quick = Stages(COMPARISON, Layout(Path("out")), quick=True)
    for stage in quick:
        if stage.kind == TRAIN:
            assert stage.words[stage.words.index("--training.steps") + 1] == "4"


def of_rollouts(quick: bool) -> dict[str, tuple[Stage, list[str]]]:
    stages = Stages(REINFORCEMENT, Layout(Path("out")), quick)
    return {stage.name: (stage, [needed.name for needed in needs]) for stage, needs in stages.with_needs()}


def test_an_agent_may_start_from_another_one_of_the_same_seed():
    stage, needs = of_rollouts(quick=False)["train-grpo-1"]
    assert stage.words[stage.words.index("--model.base") + 1] == '"out/runs/start_1"'
    assert needs == ["train-start-1"]
    stage, needs = of_rollouts(quick=False)["train-demonstrations-1"]
    assert needs == ["convert", "train-start-1"]
    keys = dict(zip(stage.words[1::2], stage.words[2::2], strict=True))
    assert keys["--seed"] == '"101"'  # an order of its own
    assert stage.words.count("--seed") == 1


BASE = "{output}/runs/start_{seed}"


@pytest.mark.parametrize("override", [{"model.base": BASE}, {"model": {"base": BASE}}])
def test_a_stage_needs_another_one_that_a_nested_override_names_in_any_alphabet(override):
    recipe, output = Path("recipes/phone_vlm_tiny_lora.yaml"), Path("out_für")
    overrides = {"start": {}, "later": override}
    agents = {key: Contestant(name=key, recipe=recipe, overrides=keys) for key, keys in overrides.items()}
    stages = Stages(COMPARISON.model_copy(update={"agents": agents, "served": None}), Layout(output))
    needs = {stage.name: [needed.name for needed in needed] for stage, needed in stages.with_needs()}
    assert needs["train-later-0"] == ["convert", "train-start-0"]


def test_a_misspelt_key_of_quick_is_refused():
    quick = REINFORCEMENT.quick.model_copy(update={"training": {"trainning.steps": 4}})
    with pytest.raises(RecipeError, match="trainning"):
        list(Stages(REINFORCEMENT.model_copy(update={"quick": quick}), Layout(Path("out")), quick=True))


def test_rollouts_read_no_shards_and_only_recipes_with_a_section_have_its_keys():
    stages = of_rollouts(quick=True)
    rollouts, recorded = (stages[name][0].words for name in ("train-grpo-0", "train-start-0"))
    assert "--data.shards" in recorded and "--data.shards" not in rollouts
    assert "--training.steps" in recorded and "--training.steps" in rollouts
    assert "--reinforcement.rounds" in rollouts and "--reinforcement.rounds" not in recorded
