"""Whether an action could spend money: the words that tell, all of them here, and where they are looked for.

This is a net, not a proof. It reads what the phone says of itself (activity, texts on the screen) and what is typed; a
button that is a picture, or a language that is not in the lists, passes it.
"""

import re
from collections.abc import Sequence

from vlm_agent.episodes import Action, ActionKind, UiElement

ACTIVITIES = ("billing", "buyflow", "checkout", "payment", "paypal", "purchase", "wallet")
"""Anywhere in the name of what is in front: on such a screen every action counts."""

SCREENS = (
    *("card number", "confirm and pay", "confirm order", "confirm purchase", "cvc", "cvv", "expiry date", "pay by"),
    *("pay now", "pay with", "payment details", "payment method", "place order", "place your order", "review order"),
    *("jetzt bezahlen", "kartennummer", "kostenpflichtig bestellen", "zahlungsart", "zahlungspflichtig bestellen"),
    *("confirmar compra", "método de pago", "número de tarjeta", "realizar pedido"),
    *("confirmer l'achat", "mode de paiement", "numéro de carte", "passer la commande"),
)
"""In a text on the screen: on such a screen every action counts."""

BUTTONS = (
    *("book now", "buy", "check out", "checkout", "donate", "order", "order now", "pay", "proceed to checkout"),
    *("purchase", "rent", "reserve", "send money", "start free trial", "subscribe", "top up", "upgrade"),
    *("abonnieren", "bestellen", "bezahlen", "buchen", "jetzt kaufen", "kaufen", "zur kasse"),
    *("abonar", "comprar", "comprar ahora", "pagar", "reservar", "suscribirse"),
    *("acheter", "commander", "payer", "réserver", "s'abonner"),
)
"""Words in the text of what is tapped, and in a goal where the phone does not tell what is on its screen."""

NEAR = 0.02
"""A tap counts for elements this near to it too (screen fractions): what answers a finger is larger than its text."""

_HARMLESS = (
    ActionKind.PRESS_BACK,
    ActionKind.PRESS_HOME,
    ActionKind.STATUS_TASK_COMPLETE,
    ActionKind.STATUS_TASK_IMPOSSIBLE,
)
_WORDS = re.compile(r"[\w']+")
_CARD = re.compile(r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)")


def why_purchase(action: Action, goal: str, activity: str, elements: Sequence[UiElement] | None) -> str | None:
    """Why the action could spend money, in words; None where nothing says so.

    `elements` is None, or empty, where the phone does not tell what is on its screen. Then a goal that speaks of buying
    makes every action count.
    """
    if action.kind in _HARMLESS:
        return None
    if (word := next((word for word in ACTIVITIES if word in activity.casefold()), None)) is not None:
        return f"{activity} has {word!r} in its name"
    if _has_card_number(action.text):
        return "what is typed looks like the number of a card"
    if not elements:
        word = _word_in(goal, (*BUTTONS, *SCREENS))
        return None if word is None else f"the goal says {word!r}, and the phone does not tell what is on its screen"
    return _why_by_elements(action, elements)


def _why_by_elements(action: Action, elements: Sequence[UiElement]) -> str | None:
    for element in elements:
        if _word_in(element.text, SCREENS) is not None:
            return f"the screen says {element.text[:80]!r}"
        if action.is_tap and _is_near(element, action.touch_yx) and _word_in(element.text, BUTTONS) is not None:
            return f"what is tapped says {element.text[:80]!r}"
    return None


def _word_in(text: str, words: Sequence[str]) -> str | None:
    """The first of `words` that stands in `text` as whole words, whatever the case."""
    spaced = " ".join(("", *_WORDS.findall(text.casefold()), ""))
    return next((word for word in words if f" {word} " in spaced), None)


def _is_near(element: UiElement, point_yx: tuple[float, float]) -> bool:
    y, x, height, width = element.box
    return y - NEAR <= point_yx[0] <= y + height + NEAR and x - NEAR <= point_yx[1] <= x + width + NEAR


def _has_card_number(text: str) -> bool:
    """13 to 19 digits of which the last is the check digit that cards have (Luhn's)."""
    return any(_luhn([int(digit) for digit in re.sub(r"\D", "", found)]) for found in _CARD.findall(text))


def _luhn(digits: list[int]) -> bool:
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
