"""A new kind of actions is a row of `ActionKind`: its facts are read from there, and few files name it."""

import re
from pathlib import Path

import pytest
from devices.adb.test_commands import Unconnected

import vlm_agent
from vlm_agent.action_languages import LANGUAGES
from vlm_agent.annotation.check import _PRESSING
from vlm_agent.devices.adb.fingers import HARDWARE_KEYS
from vlm_agent.devices.browser.phone import _EFFECTS
from vlm_agent.drawing.actions import describe
from vlm_agent.episodes import ACTION_NAMES, BUTTONS, NO_POINT, Action, ActionKind, Screen
from vlm_agent.evaluation.foreign.answers import KINDS
from vlm_agent.evaluation.scoring.steps import _NAME_OF_KIND
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon.shell.fingers import lines_of
from vlm_agent.texts.actions import describe_action

MOST_FILES = 10


def an_action(kind: ActionKind) -> Action:
    place = (0.25, 0.5)
    points = [place if number < kind.facts.points else NO_POINT for number in range(2)]
    return Action(kind, *points, "Maps" if kind.facts.has_text else "")


every_kind = pytest.mark.parametrize("kind", ActionKind, ids=[kind.name for kind in ActionKind])


@every_kind
def test_every_language_writes_and_reads_every_kind(kind):
    screen = Screen(None, size=(2400, 1080))
    for settings in LANGUAGES.values():
        language = settings().build()
        decoded = language.decode(language.encode(an_action(kind), screen), screen)
        assert decoded is not None
        assert (decoded.name, decoded.text) == (an_action(kind).name, an_action(kind).text)


@every_kind
def test_every_kind_has_words_and_a_category(kind):
    action = an_action(kind)
    assert describe_action(action, "the button").startswith(kind.facts.words)
    assert describe(action)
    assert action.name in ACTION_NAMES
    assert ACTION_NAMES[_NAME_OF_KIND[kind]] == action.name
    assert KINDS[kind.name.lower()] is kind


@every_kind
def test_every_phone_performs_every_kind(kind):
    action, phone = an_action(kind), SimulatedPhone(0, (400, 190))
    phone.perform(action)
    assert (phone.status is kind) == kind.facts.ends_episode
    assert action.name in _EFFECTS or kind.facts.ends_episode or kind is ActionKind.ANSWER


@every_kind
def test_gestures_and_keys_are_commands_of_android_and_events_of_its_fingers(kind):
    is_on_the_phone = kind.facts.points > 0 or kind.facts.key is not None
    assert bool(lines_of(an_action(kind), (400, 190), 1, 0.0)) == is_on_the_phone
    if is_on_the_phone:
        assert Unconnected()._command(an_action(kind))[0] == "input"


def test_keys_are_those_of_the_table():
    keys = {kind.short_name for kind in ActionKind if kind.facts.key}
    assert keys == {action.name for action in HARDWARE_KEYS.values()} == _PRESSING
    assert set(BUTTONS) <= keys


@pytest.mark.parametrize("name", ["LONG_PRESS", "OPEN_APP", "WAIT", "RECENTS", "ANSWER"])
def test_few_files_name_a_kind_that_came_with_later_data_sets(name):
    names = re.compile(rf"ActionKind\.{name}\b|\bAction\.{name.lower()}\b|\"{name}\(|^    {name} = ", re.MULTILINE)
    root = Path(vlm_agent.__file__).parent
    found = [str(path.relative_to(root)) for path in root.rglob("*.py") if names.search(path.read_text("utf-8"))]
    assert "episodes.py" in found
    own = ("datasets/sources/", "environments/")  # each data set and each trainer has its own names
    found = [path for path in found if not path.startswith(own)]
    assert len(found) <= MOST_FILES, found
