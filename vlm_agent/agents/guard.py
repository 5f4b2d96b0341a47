"""What an agent may do on a phone: asked before every action, and the last word on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vlm_agent.agents.purchases import why_purchase
from vlm_agent.episodes import Action, ActionKind, UiElement

PURCHASE, OUTSIDE, REFUSED = "purchase", "outside_apps", "refused"

_LEAVING = (ActionKind.PRESS_BACK, ActionKind.PRESS_HOME)


@dataclass(frozen=True)
class Proposal:
    """What the agent is about to do, and where: `elements` is None where the phone does not tell what it shows."""

    number: int
    goal: str
    activity: str
    elements: Sequence[UiElement] | None
    action: Action


@dataclass(frozen=True)
class Guard:
    """`apps` are the packages, or whole activities, in which the agent may act; None is all. It may always go home,
    back, and choose an app on the launcher.

    `ask` puts a question to a person and tells whether the answer is yes; without it nobody is there, and what would
    have to be asked is refused. With `confirm_all` every action but the declaration of the end is asked for.
    """

    ask: Callable[[str], bool] | None = None
    confirm_all: bool = False
    apps: Sequence[str] | None = None
    allow_purchases: bool = False

    def refusal(self, proposal: Proposal) -> tuple[str, str] | None:
        """Why the action is not to be done: (reason, message), None where it may be."""
        if proposal.action.is_status:
            return None
        if not self._is_inside(proposal):
            where = proposal.activity or "an app that the phone does not name"
            return OUTSIDE, f"{where} is none of the apps allowed: {', '.join(self.apps)}"
        danger = None
        if not self.allow_purchases:
            danger = why_purchase(proposal.action, proposal.goal, proposal.activity, proposal.elements)
        if danger is not None:
            if self._is_agreed(f"This could spend money: {danger}. Do it?"):
                return None
            return PURCHASE, f"not confirmed, and it could spend money: {danger}"
        if self.confirm_all and not self._is_agreed("Do it?"):
            return REFUSED, "not confirmed"
        return None

    def _is_agreed(self, question: str) -> bool:
        return self.ask is not None and self.ask(question)

    def _is_inside(self, proposal: Proposal) -> bool:
        if self.apps is None or proposal.action.kind in _LEAVING:
            return True
        package = proposal.activity.partition("/")[0]
        return is_launcher(package) or package in self.apps or proposal.activity in self.apps


def is_launcher(package: str) -> bool:
    """Makers name theirs differently, but nearly all so."""
    return "launcher" in package.casefold() or package.endswith(".home")
