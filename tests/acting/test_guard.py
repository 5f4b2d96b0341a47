"""The guard permits or refuses every action."""

import pytest

from vlm_agent.acting.guard import OUTSIDE, PURCHASE, REFUSED, Guard, Proposal, is_launcher
from vlm_agent.episodes import Action, UiElement

ORDER = (UiElement((0.4, 0.4, 0.2, 0.2), "Place order"),)
NOTHING = (UiElement((0.4, 0.4, 0.2, 0.2), "News"),)


def proposal(action=None, activity="org.shop/.Cart", elements=NOTHING):
    return Proposal(0, "look around", activity, elements, Action.tap(0.5, 0.5) if action is None else action)


class Person:
    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, question):
        self.asked.append(question)
        return self.answers.pop(0)


def reason(guard, proposed):
    refusal = guard.refusal(proposed)
    return None if refusal is None else refusal[0]


def test_a_purchase_is_refused_where_nobody_is_there_to_ask():
    assert reason(Guard(), proposal(elements=ORDER)) == PURCHASE
    assert reason(Guard(), proposal()) is None


def test_a_purchase_is_done_when_a_person_agrees_and_not_otherwise():
    person = Person(True, False)
    guard = Guard(ask=person)
    assert reason(guard, proposal(elements=ORDER)) is None
    assert reason(guard, proposal(elements=ORDER)) == PURCHASE
    assert all("Place order" in question for question in person.asked)


def test_purchases_that_are_allowed_are_not_asked_for():
    person = Person()
    assert reason(Guard(ask=person, allow_purchases=True), proposal(elements=ORDER)) is None
    assert not person.asked


def test_with_confirm_every_action_is_asked_for_once_and_the_end_is_not():
    person = Person(True, False, True)
    guard = Guard(ask=person, confirm_all=True)
    assert reason(guard, proposal()) is None
    assert reason(guard, proposal()) == REFUSED
    assert reason(guard, proposal(elements=ORDER)) is None
    assert reason(guard, proposal(Action.complete())) is None
    assert len(person.asked) == 3


@pytest.mark.parametrize(
    ("activity", "is_allowed"),
    [
        ("org.shop/.Cart", True),
        ("org.shopping/.Cart", False),
        ("org.mail/.Inbox", True),
        ("org.mail/.Settings", False),
        ("org.launcher/.Home", True),
        ("com.google.android.apps.nexuslauncher/.NexusLauncherActivity", True),
        ("", False),
    ],
)
def test_only_in_the_apps_that_are_allowed_it_acts(activity, is_allowed):
    guard = Guard(apps=["org.shop", "org.mail/.Inbox"])
    assert (reason(guard, proposal(activity=activity)) is None) is is_allowed
    assert reason(guard, proposal(Action.swipe((0.8, 0.5), (0.2, 0.5)), activity)) == (None if is_allowed else OUTSIDE)
    for button in ("back", "home"):
        assert reason(guard, proposal(Action.press(button), activity)) is None


def test_an_app_is_no_launcher_by_the_name_of_its_page():
    assert is_launcher("com.miui.home")
    assert not is_launcher("com.homedepot")
