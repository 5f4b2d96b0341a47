"""The guard: permits or refuses each action on a phone before it is executed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vlm_agent.devices.acting.purchases import purchase_reason
from vlm_agent.devices.android import short_component
from vlm_agent.episodes import Action, ActionKind, UiElement

PURCHASE, OUTSIDE, REFUSED = "purchase", "outside_apps", "refused"

_LEAVING = (ActionKind.PRESS_BACK, ActionKind.PRESS_HOME)


@dataclass(frozen=True)
class Proposal:
    """An action before its execution, with its step number, goal and screen.

    `elements`: None if the phone does not report them. `typed_before`: the text that the actions just before typed.
    """

    number: int
    goal: str
    activity: str
    elements: Sequence[UiElement] | None
    action: Action
    typed_before: str = ""


@dataclass(frozen=True)
class Guard:
    """Permits or refuses proposed actions.

    `apps`: the packages, or `package/activity` names, in which the agent may act; None permits all. Home, back and
    actions on the launcher are always permitted.

    `ask`: asks a person a question and returns whether the answer is yes. Without it, every action that needs
    confirmation is refused. `confirm_all`: every action except a status action needs confirmation. `allow_purchases`:
    actions that could spend money need no confirmation. `launcher`: the package of the phone's home screen; None if it
    is not known. `reads_pixels`: elements are read from pixels, so that texts in some scripts are missing.
    """

    ask: Callable[[str], bool] | None = None
    confirm_all: bool = False
    apps: Sequence[str] | None = None
    allow_purchases: bool = False
    launcher: str | None = None
    reads_pixels: bool = False

    def refusal(self, proposal: Proposal) -> tuple[str, str] | None:
        """(reason, message) if the action is refused, else None."""
        if proposal.action.is_status:
            return None
        if self.apps is not None and not _is_inside(proposal, self.apps, self.launcher):
            activity = proposal.activity or "an app of unknown name"
            return OUTSIDE, f"{activity} is not one of the permitted apps: {', '.join(self.apps)}"
        purchase = None
        if not self.allow_purchases:
            action, typed = proposal.action, proposal.typed_before
            if action.kind == ActionKind.TYPE and typed:
                action = Action.type_text(typed + action.text)
            purchase = purchase_reason(action, proposal.goal, proposal.activity, proposal.elements, self.reads_pixels)
        if purchase is not None:
            if self._confirms(f"This could spend money: {purchase}. Continue?"):
                return None
            return PURCHASE, f"not confirmed, although it could spend money: {purchase}"
        if self.confirm_all and not self._confirms("Continue?"):
            return REFUSED, "not confirmed"
        return None

    def _confirms(self, question: str) -> bool:
        return self.ask is not None and self.ask(question)


def _is_inside(proposal: Proposal, apps: Sequence[str], launcher: str | None) -> bool:
    if proposal.action.kind in _LEAVING:
        return True
    package = proposal.activity.partition("/")[0]
    activity = short_component(proposal.activity)
    return package == launcher or package in apps or activity in map(short_component, apps)
