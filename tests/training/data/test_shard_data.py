"""A plan knows every row of a run before any weight is loaded, and windows lose and repeat no action."""

import itertools

import pytest
import torch
from helpers import tiny
from helpers.models import families, tiny_qwen

from vlm_agent.episodes import Action
from vlm_agent.errors import RecipeError
from vlm_agent.models.build import build
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.recipe.run import Recipe, ValidationRecipe
from vlm_agent.sentences import IGNORED
from vlm_agent.training.data.recipe_sentences import whole_lengths
from vlm_agent.training.data.shard_data import ShardDataModule, data_module_of

EPISODES = [
    tiny.episode(0),
    tiny.episode(1, tiny.ACTIONS[:1], size=(20, 60)),
    tiny.episode(2, tiny.ACTIONS[::-1] + tiny.ACTIONS, size=(50, 40)),
    tiny.episode(3, tiny.ACTIONS[1:3]),
]
STEPS = sum(len(episode) for episode in EPISODES)
every_family = pytest.mark.parametrize("name", families.NAMES)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return tiny.write_shards(tmp_path_factory.mktemp("shards"), EPISODES)


def planned(
    shards, name: str = "llama_vit", data: dict | None = None, keys: dict | None = None, **training
) -> ShardDataModule:
    content = tiny.recipe(shards, shards / "run") | (keys or {})
    if name != "llama_vit":
        content["model"] = tiny_qwen.recipe(name).model_dump(mode="json")
    content["data"] |= data or {}
    content["training"] = {"epochs": 1} | training
    return ShardDataModule(Recipe(**content))


def losses(plan: ShardDataModule, model) -> dict[str, torch.Tensor]:
    """The token losses of every sentence of one pass, by the steps of the sentence."""
    found, stream = {}, plan.stream()
    with torch.inference_mode():
        for row in (stream[number] for number in range(plan.order.rows_in(1))):
            given = {key: value for key, value in row.items() if key not in NOT_FOR_MODELS}
            bounds = row["cu_seqlens"].tolist()
            counts = [int((row["labels"][0, a:b] != IGNORED).sum()) for a, b in itertools.pairwise(bounds)]
            found |= zip(row["about"], model(**given).token_losses.split(counts), strict=True)
    return found


def half_of_the_longest(plan: ShardDataModule) -> int:
    return int(whole_lengths(plan.shards, plan.sentences).max()) // 2


@every_family
def test_a_budget_larger_than_every_episode_changes_no_loss(shards, name):
    alone = planned(shards, name)
    packed = planned(shards, name, batch_tokens=int(whole_lengths(alone.shards, alone.sentences).sum()))
    torch.manual_seed(0)
    model = build(alone.recipe.model, alone.tokenizer, tiny.LANGUAGE).eval()
    assert (alone.order.rows_in(1), packed.order.rows_in(1)) == (len(EPISODES), 1)
    one_by_one, together = losses(alone, model), losses(packed, model)
    assert one_by_one.keys() == together.keys()
    assert all(torch.allclose(one_by_one[about], together[about], atol=1e-5) for about in together)


@every_family
def test_over_the_budget_each_action_is_supervised_once_as_in_the_sentence_of_its_window(shards, name):
    plan = planned(shards, name, batch_tokens=half_of_the_longest(planned(shards, name)))
    torch.manual_seed(0)
    model = build(plan.recipe.model, plan.tokenizer, tiny.LANGUAGE).eval()
    found = losses(plan, model)
    assert len(plan.order.items) > len(EPISODES)
    learned = 0
    for item in plan.order.items:
        episode, window = plan.shards[item.episode], item.window
        sentence = plan.sentences.build(episode, window.first, window.last)
        assert len(sentence) == window.tokens
        assert window.tokens <= plan.recipe.training.batch_tokens
        row = {key: value for key, value in plan.processor.collate([sentence]).items() if key not in NOT_FOR_MODELS}
        with torch.inference_mode():
            every = model(**row).token_losses
        loss = found.pop(f"{episode.id} steps {window.first_supervised}-{window.last - 1}")
        counts = [len(tiny.action_ids(plan.sentences, step.action)) for step in episode.steps]
        assert len(loss) == sum(counts[window.first_supervised : window.last])
        assert torch.allclose(loss, every[len(every) - len(loss) :], atol=1e-5)
        learned += window.last - window.first_supervised
    assert not found
    assert learned == STEPS


def test_the_longest_sentence_may_be_shorter_than_the_row(shards):
    longest = half_of_the_longest(planned(shards))
    plan = planned(shards, data={"max_tokens": longest}, batch_tokens=3 * longest)
    assert max(item.window.tokens for item in plan.order.items) <= longest
    assert any(len(plan.order.row(number)) > 1 for number in range(plan.order.rows_in(1)))
    by_count = planned(shards, data={"max_tokens": longest}, batch_size=2)
    assert list(by_count.order.items) == list(plan.order.items)
    assert {len(by_count.order.row(number)) for number in range(by_count.order.rows_in(1) - 1)} == {2}


def test_without_a_budget_a_row_is_one_episode(shards):
    plan = planned(shards)
    whole = [
        (window.first, window.first_supervised, window.last) for window in (item.window for item in plan.order.items)
    ]
    assert whole == [(0, 0, len(episode)) for episode in EPISODES]
    assert all(len(plan.order.row(number)) == 1 for number in range(8))


def test_a_step_larger_than_a_row_is_an_error_that_names_the_episode_and_the_key(shards):
    with pytest.raises(RecipeError, match=r"^episode 0: step 0 takes \d+ tokens .* raise training.batch_tokens"):
        planned(shards, batch_tokens=10).stream()


def test_an_episode_longer_than_the_models_context_is_an_error_that_names_the_key(shards):
    plan = planned(shards)
    longest = int(whole_lengths(plan.shards, plan.sentences).max())
    plan.config.text_config.max_position_embeddings = longest
    assert plan.order.items
    plan = planned(shards)
    plan.config.text_config.max_position_embeddings = longest - 1
    with pytest.raises(RecipeError, match=rf"^episode 2 has {longest} tokens.*data.max_tokens: {longest - 1}"):
        plan.stream()


def test_without_history_every_step_is_a_sentence_of_its_own(shards):
    plan = planned(shards, data={"control": "no_history"})
    sentences = [sentence for row in range(plan.order.rows_in(1)) for sentence in plan.stream().sentences(row)]
    assert [len(sentence.screens) for sentence in sentences] == [1] * STEPS
    assert len({sentence.about for sentence in sentences}) == STEPS
    assert plan.row_size.sentences == round(STEPS / len(EPISODES))


def test_on_grey_screens_only_the_pixels_differ(shards):
    grey, seeing = planned(shards, data={"control": "grey_screens"}), planned(shards)
    for one, other in zip(grey.stream().sentences(0), seeing.stream().sentences(0), strict=True):
        assert (one.input_ids, one.labels) == (other.input_ids, other.labels)
        assert {screen.min() for screen in one.screens} == {screen.max() for screen in one.screens} == {128}


@pytest.mark.parametrize(
    ("training", "ranks", "steps"),
    [
        ({"epochs": 1}, 1, 4),
        ({"epochs": 2.5}, 1, 10),
        ({"epochs": 1, "batch_size": 3}, 1, 2),
        ({"epochs": 2, "accumulation": 3}, 1, 3),
        ({"epochs": 2, "accumulation": 2}, 2, 2),
        ({"epochs": None, "steps": 7, "accumulation": 2}, 2, 7),
    ],
)
def test_steps_are_as_many_as_the_epochs_need(shards, training, ranks, steps, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    plan = planned(shards, **training)
    assert plan.steps == steps
    assert len(plan.stream()) == steps * training.get("accumulation", 1) * ranks


def test_the_rows_do_not_depend_on_the_ranks_that_read_them(shards, monkeypatch):
    budget = half_of_the_longest(planned(shards))
    alone = planned(shards, batch_tokens=budget, accumulation=4).stream()
    monkeypatch.setenv("WORLD_SIZE", "4")
    together = planned(shards, batch_tokens=budget).stream()
    assert len(alone) == len(together)
    assert [alone.order.row(number) for number in range(len(alone))] == [
        together.order.row(number) for number in range(len(alone))
    ]


@pytest.mark.parametrize("training", [{}, {"batch_tokens": 200}], ids=["one a row", "packed"])
def test_validation_reads_every_episode_of_its_sample_once(shards, training):
    validation = ValidationRecipe(split="train", episodes=3)
    rows = planned(shards, **training).validation_rows(validation)
    read = [about.split(" steps ") for number in range(len(rows)) for about in rows[number]["about"]]
    again = planned(shards, **training).validation_rows(validation)
    assert len({episode for episode, _ in read}) == 3
    assert len(read) == len(set(map(tuple, read)))
    assert [again[number]["about"] for number in range(len(again))] == [
        rows[number]["about"] for number in range(len(rows))
    ]


def test_a_split_without_episodes_cannot_be_validated_on(shards):
    with pytest.raises(RecipeError, match="no episode in split validation"):
        planned(shards).validation_rows(ValidationRecipe())


@pytest.mark.parametrize(("part", "has_labels"), [("vision", False), ("projector", True)])
def test_element_labels_are_built_only_if_the_projector_is_trained(shards, part, has_labels):
    plan = planned(shards, batch_size=2)
    model = plan.recipe.model
    frozen = model.train.model_copy(
        update={"vision": "frozen", "projector": "frozen"} | ({part: "full"} if has_labels else {})
    )
    recipe = plan.recipe.model_copy(update={"model": model.model_copy(update={"train": frozen})})
    assert ("element_labels" in ShardDataModule(recipe).stream()[0]) == has_labels


def test_element_names_are_read_without_counting_tokens(shards):
    plan = planned(shards, data={"sentences": "elements"}, batch_size=2)
    row = plan.stream()[0]
    assert len(row["screens"]) == 2
    assert row["element_labels"].shape == (2, tiny.GRID[0] * tiny.GRID[1])
    assert "counts" not in plan.kind.__dict__


@pytest.mark.parametrize("language", ["binned", "named"])
def test_only_episodes_of_the_run_are_counted_and_its_rows_are_the_same(tmp_path, language):
    """Episodes that the limit leaves out may even be too long for a row."""
    long = tiny.episode(9, tuple(Action.type_text("x" * 300 + str(number)) for number in range(3)))
    chosen = [tiny.episode(0), tiny.episode(2, tiny.ACTIONS[1:])]
    data, language = {"limit": 2}, {"action_language": {"name": language, "bins": tiny.BINS}}
    plans = [
        planned(tiny.write_shards(tmp_path / str(len(episodes)), episodes), data=data, keys=language, batch_tokens=200)
        for episodes in ([chosen[0], long, chosen[1], long], chosen)
    ]
    assert plans[0].episodes == [0, 2]
    counts, rows = (
        [make(plan) for plan in plans]
        for make in (lambda plan: plan.kind.counts.items["tokens"].tolist(), lambda plan: plan.stream()[0]["about"])
    )
    assert counts[0] == counts[1]
    assert rows[0] == rows[1]


def test_a_recipe_without_shards_trains_nothing(tmp_path):
    content = tiny.recipe(tmp_path, tmp_path / "run") | {"data": {}}
    with pytest.raises(RecipeError, match=r"data\.shards is missing; name a folder that vlm-agent convert wrote"):
        _ = data_module_of(Recipe(**content)).order
