"""`vlm_agent/Phone-v0`: Gymnasium's own checks, the same phone for the same task, success by state, and refusals."""

import gc
import importlib
import sys
import warnings

import numpy as np
import pytest

import vlm_agent.environments  # noqa: F401 (registers the environment)
from vlm_agent.action_languages import language_settings
from vlm_agent.environments.play import LONGEST_TEXT, PlayError, Tasks
from vlm_agent.episodes import Action
from vlm_agent.simulator import TEMPLATES

gymnasium = pytest.importorskip("gymnasium")
ResetNeeded = gymnasium.error.ResetNeeded

TASK = "general/train/7"
BINNED = language_settings({"name": "binned"}).build()


@pytest.fixture(scope="module")
def env():
    return gymnasium.make("vlm_agent/Phone-v0", split="train", language="binned")


def solve(env, address):
    """Plays the expert's actions; the last step's result."""
    env.reset(options={"task": address})
    return [env.step(BINNED.encode(action)) for action in Tasks().named(address).solution().actions][-1]


def test_gymnasiums_own_checker_has_no_complaint(env):
    from gymnasium.utils.env_checker import check_env

    gc.collect()  # what earlier tests left would warn here
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_a_task_and_a_seed_name_the_same_phone_pixel_by_pixel(env):
    other = gymnasium.make("vlm_agent/Phone-v0", templates=["go_home"])
    for options in ({"options": {"task": TASK}}, {"seed": 3}):
        (first, about), (again, _) = env.reset(**options), env.reset(**options)
        assert np.array_equal(first["screen"], again["screen"]) and first["elements"] == again["elements"]
        assert about["task"].split("/")[1] == "train"
    there, _ = other.reset(options={"task": about["task"]})
    assert np.array_equal(there["screen"], first["screen"])
    assert {other.reset(seed=seed)[1]["template"] for seed in range(4)} == {"go_home"}


def test_sixty_four_phones_run_side_by_side():
    phones = gymnasium.make_vec(
        "vlm_agent/Phone-v0", num_envs=64, vectorization_mode="sync", templates=["go_home", "pull_shade"]
    )
    observation, info = phones.reset(seed=0)
    assert observation["screen"].shape == (64, 448, 208, 3) and len(set(info["task"])) == 64
    _, rewards, terminated, _, info = phones.step(["complete"] * 32 + ["tap at 50 50"] * 32)
    assert rewards.shape == (64,) and terminated[:32].sum() == 32
    assert set(info["ended"][:32]) == {"complete"}


@pytest.mark.parametrize("address", [TASK, "single/validation/3", "web_shopping/train/1"])
def test_the_experts_actions_earn_the_reward_and_the_outcome_names_them(env, address):
    _, reward, terminated, truncated, info = solve(env, address)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["success"] and info["reached"] and not info["side_effects"]
    assert info["steps"] == info["expert_steps"]


def test_shared_memory_which_loses_texts_is_refused_by_gymnasium():
    with pytest.raises(TypeError, match="disable `shared_memory`"):
        gymnasium.make_vec("vlm_agent/Phone-v0", num_envs=1, vectorization_mode="async")


def test_complete_without_the_goal_is_a_false_complete(env):
    env.reset(options={"task": TASK})
    *_, reward, terminated, _, info = env.step(BINNED.encode(Action.complete()))
    assert (reward, terminated, info["false_complete"], info["ended"]) == (0.0, True, True, "complete")


def test_a_wrapper_that_draws_on_the_screen_does_not_change_how_the_play_ends(env):
    endings = []
    for draws in (False, True):
        observation, _ = env.reset(options={"task": TASK})
        for number in range(10):
            observation["screen"][200:204] = number if draws else observation["screen"][200:204]
            observation, *_, info = env.step("tap at 1 1")
            if "ended" in info:
                endings.append((number, info["ended"]))
                break
    assert endings[0] == endings[1] and endings[0][1] == "loop"


def test_the_limit_of_steps_truncates(env):
    env.reset(options={"task": TASK})
    taps = (BINNED.encode(Action.tap(0.01, number / 100)) for number in range(100))
    *_, truncated, info = next(result for text in taps if any((result := env.step(text))[2:4]))
    assert truncated and info["steps"] == 2 * info["expert_steps"] + 4


@pytest.mark.parametrize(
    "text", ["", "dance", "tap at 30", "tap at 30 12 " * 80_000, "\x00", "ü" * LONGEST_TEXT], ids=lambda text: text[:20]
)
def test_a_text_that_is_no_action_is_a_failed_step(env, text):
    env.reset(options={"task": TASK})
    observation, reward, terminated, truncated, info = env.step(text)
    assert (reward, terminated, truncated, info["ended"], info["success"]) == (0.0, True, False, "unparsed", False)
    assert observation in env.observation_space


def test_a_step_outside_an_episode_is_gymnasiums_own_error(env):
    phone = gymnasium.make("vlm_agent/Phone-v0").unwrapped
    for use in (lambda: phone.step("complete"), phone.render):
        with pytest.raises(ResetNeeded, match="reset"):
            use()
    phone.reset(options={"task": TASK})
    with pytest.raises(gymnasium.error.InvalidAction, match="not int"):
        phone.step(3)
    phone.step("no action")
    with pytest.raises(ResetNeeded):
        phone.step("complete")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "test"}, "allow_test=True"),
        ({"split": "trian"}, "did you mean train"),
        ({"templates": ["go_hme"]}, "did you mean go_home"),
        ({"templates": []}, "no template"),
        ({"language": "nmaed"}, "did you mean named"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(options, message):
    with pytest.raises(PlayError, match=message) as caught:
        gymnasium.make("vlm_agent/Phone-v0", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "task", ["general/test/7", "genral/train/7", "general/train", "general/train/" + "9" * 5000, 7]
)
def test_unknown_tasks_and_test_tasks_are_refused_in_one_line(env, task):
    with pytest.raises(PlayError) as caught:
        env.reset(options={"task": task})
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_test_tasks_are_for_whoever_says_so():
    env = gymnasium.make("vlm_agent/Phone-v0", split="test", allow_test=True)
    assert env.reset(seed=0)[1]["task"].split("/")[1] == "test"


def test_every_template_can_be_chosen():
    for template in TEMPLATES:
        assert Tasks(templates=[template.name]).drawn(0).template == template.name


def test_without_gymnasium_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "vlm_agent.environments.gymnasium")
    with pytest.raises(PlayError, match=r"pip install .*gymnasium"):
        importlib.import_module("vlm_agent.environments.gymnasium")
