"""The guard permits or refuses every action."""

import pytest

from vlm_agent.devices.acting.guard import OUTSIDE, PURCHASE, REFUSED, Guard, Proposal
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


def test_without_a_person_to_ask_a_purchase_is_refused():
    assert reason(Guard(), proposal(elements=ORDER)) == PURCHASE
    assert reason(Guard(), proposal()) is None


def test_a_purchase_needs_confirmation():
    person = Person(True, False)
    guard = Guard(ask=person)
    assert reason(guard, proposal(elements=ORDER)) is None
    assert reason(guard, proposal(elements=ORDER)) == PURCHASE
    assert all("Place order" in question for question in person.asked)


def test_with_allow_purchases_no_confirmation_is_needed():
    person = Person()
    assert reason(Guard(ask=person, allow_purchases=True), proposal(elements=ORDER)) is None
    assert not person.asked


def test_with_confirm_all_every_action_except_status_needs_one_confirmation():
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
        ("org.mail/org.mail.Inbox", True),
        ("org.pay/org.pay.Sheet", True),
        ("org.pay/org.other.Sheet", False),
        ("org.launcher/.Home", True),
        ("com.launchergames/.Pay", False),
        ("com.bank.home/.Transfer", False),
        ("", False),
    ],
)
def test_actions_outside_the_permitted_apps_are_refused(activity, is_allowed):
    guard = Guard(apps=["org.shop", "org.mail/.Inbox", "org.pay/.Sheet"], launcher="org.launcher")
    assert (reason(guard, proposal(activity=activity)) is None) is is_allowed
    assert reason(guard, proposal(Action.swipe((0.8, 0.5), (0.2, 0.5)), activity)) == (None if is_allowed else OUTSIDE)
    for button in ("back", "home"):
        assert reason(guard, proposal(Action.press(button), activity)) is None


def test_on_a_phone_whose_launcher_is_unknown_only_the_permitted_apps_are_allowed():
    guard = Guard(apps=["org.shop/org.shop.Cart"])
    assert reason(guard, proposal(activity="org.launcher/.Home")) == OUTSIDE
    assert reason(guard, proposal(activity="")) == OUTSIDE
    assert reason(guard, proposal(activity="org.shop/.Cart")) is None
