"""Detects actions that could spend money, by the words on the screen.

This filter gives no guarantee. It reads the activity, the texts on the screen and the typed text, and the goal where no
text is known. It misses buttons without text for other goals, prices alone, words that are not in the lists below, and
other languages.
"""

import re
from collections.abc import Sequence

from vlm_agent.episodes import KINDS_WITH_TOUCH, WIDGET_KINDS, Action, ActionKind, UiElement, element_at
from vlm_agent.texts.folding import WordList
from vlm_agent.texts.secrets import has_card

ACTIVITIES = ("billing", "buyflow", "checkout", "payment", "paypal", "purchase", "wallet")
"""Parts of an activity's name. On such a screen every action could spend money."""

SCREENS = (
    # English
    *("card number", "confirm and pay", "confirm order", "confirm purchase", "cvc", "cvv", "expiry date", "pay by"),
    *("pay now", "pay with", "payment details", "payment method", "place order", "place your order", "review order"),
    # German
    *("jetzt bezahlen", "kartennummer", "kostenpflichtig bestellen", "zahlungsart", "zahlungspflichtig bestellen"),
    *("confirmar compra", "método de pago", "número de tarjeta", "realizar pedido"),  # Spanish
    *("confirmer l'achat", "mode de paiement", "numéro de carte", "passer la commande"),  # French
    *("conferma ordine", "metodo di pagamento", "numero di carta"),  # Italian
    *("finalizar compra", "forma de pagamento", "método de pagamento", "número do cartão"),  # Portuguese
    *("betaalmethode", "kaartnummer"),  # Dutch
    *("metoda płatności", "numer karty"),  # Polish
    *("номер карты", "способ оплаты"),  # Russian
    *("kart numarası", "ödeme yöntemi"),  # Turkish
)
"""Words in a text on the screen. On such a screen every action could spend money."""

_FOLLOWED = ("buy", "donate", "order", "pay", "purchase", "rent", "reserve", "subscribe", "transfer", "upgrade")
_FOLLOWERS = ("and", "by", "for", "here", "it", "later", "now", "the", "this", "to", "today", "using", "with", "your")

BUTTONS = (
    # English
    *(f"{button} {word}" for button in _FOLLOWED for word in _FOLLOWERS),  # found without their space, too
    *("hold to pay", "slide to pay", "swipe to pay", "tap to buy", "tap to pay"),
    *("book now", "buy", "check out", "checkout", "donate", "order", "pay", "premium"),
    *("proceed to checkout", "purchase", "rent", "reserve", "send $", "send £", "send €", "send money"),
    *("start free trial", "subscribe", "subscription", "top up", "transfer", "upgrade"),
    *("abonnieren", "bestellen", "bezahlen", "buchen", "jetzt kaufen", "kaufen", "zur kasse"),  # German
    *("abonar", "comprar", "comprar ahora", "pagar", "reservar", "suscribirse"),  # Spanish
    *("acheter", "commander", "payer", "réserver", "s'abonner"),  # French
    *("abbonati", "acquista", "compra", "ordina ora", "paga", "prenota"),  # Italian
    *("assinar", "comprar agora", "fazer pedido"),  # Portuguese
    *("afrekenen", "betalen", "kopen"),  # Dutch
    *("kup", "zamów", "zapłać"),  # Polish
    *("заказать", "купить", "оплатить"),  # Russian
    *("satın al", "öde"),  # Turkish
)
"""Words in the text of a touched element, or in the goal if no text is known of what is touched."""

UNSPACED_SCREENS = (
    *("付款方式", "支付方式", "确认支付", "确认付款", "确认订单"),  # Chinese
    *("提交订单", "收银台", "银行卡号", "支付密码"),
    *("支払い方法", "注文を確定"),  # Japanese
    *("결제수단", "카드번호"),  # Korean
)
UNSPACED_BUTTONS = (
    *("购买", "支付", "付款", "下单", "结算", "充值", "续费", "预订", "打赏", "转账", "开通会员"),  # Chinese
    *("抢购", "订购", "购票", "买单", "结账", "红包", "提现"),
    *("購買", "下單", "結帳", "結算", "訂購", "買單", "轉帳", "儲值", "預訂"),
    *("支払う", "注文する", "購入"),  # Japanese
    *("결제하기", "구매", "주문하기"),  # Korean
)
"""The same in Chinese, Japanese and Korean, as parts of a text, because words need not have spaces between them. They
also name harmless things."""

NEAR = 0.02
"""The margin around an element in which a touch counts as a touch of it, in screen fractions.

A button is larger than its text.
"""

_HARMLESS = (
    ActionKind.PRESS_BACK,
    ActionKind.PRESS_HOME,
    ActionKind.STATUS_TASK_COMPLETE,
    ActionKind.STATUS_TASK_IMPOSSIBLE,
    ActionKind.WAIT,
    ActionKind.RECENTS,
    ActionKind.ANSWER,
)
"""Action kinds that do not touch or fill in anything on the screen."""

_UNNAMED_TYPES = frozenset({"TEXT", *(f"ICON_{kind.upper()}" for kind in WIDGET_KINDS)})
"""The types of elements that say nothing of what they do."""

_WORDS = re.compile(r"[\w']+|[$£€]")
_SCREEN_WORDS = WordList(SCREENS, UNSPACED_SCREENS, _WORDS)
_BUTTON_WORDS = WordList(BUTTONS, UNSPACED_BUTTONS, _WORDS)


def purchase_reason(
    action: Action, goal: str, activity: str, elements: Sequence[UiElement] | None, are_read: bool = False
) -> str | None:
    """Why the action could spend money; None if nothing indicates it.

    `elements` is None or empty if the phone reports none. Then every action could spend money if the goal contains a
    word of `BUTTONS` or `SCREENS`; otherwise such a goal counts for touches of an element without a name. `are_read`:
    the elements were read from pixels, where scripts that the reader does not know leave no element; such a goal then
    counts for every touch outside of all elements, too.
    """
    if action.kind in _HARMLESS:
        return None
    if (word := next((word for word in ACTIVITIES if word in activity.casefold()), None)) is not None:
        return f"{activity} has {word!r} in its name"
    if has_card(action.text):
        return "the typed text looks like a card number"
    if not elements:
        return _reason_by_goal(goal, "the phone does not report the texts on its screen")
    reason = _reason_by_elements(action, elements)
    if reason is None and _touches_unnamed(action, elements, are_read):
        reason = _reason_by_goal(goal, "what the action touches has no text that could be read")
    return reason


def _reason_by_goal(goal: str, why: str) -> str | None:
    word = _BUTTON_WORDS.find(goal) or _SCREEN_WORDS.find(goal)
    return None if word is None else f"the goal mentions {word!r}, and {why}"


def _touches_unnamed(action: Action, elements: Sequence[UiElement], are_read: bool) -> bool:
    # A swipe up or down scrolls: it may begin anywhere. One sideways may be a slider.
    if action.kind not in KINDS_WITH_TOUCH or (action.is_swipe and action.direction in ("up", "down")):
        return False
    touched = element_at(elements, action.touch_yx)
    if touched is None:
        return are_read
    return not touched.text.strip() and touched.type in _UNNAMED_TYPES


def _reason_by_elements(action: Action, elements: Sequence[UiElement]) -> str | None:
    # A swipe counts by where it begins: "Slide to pay". A page that is scrolled by such a button asks, too.
    touches = action.kind in KINDS_WITH_TOUCH
    for element in elements:
        if _SCREEN_WORDS.find(element.text) is not None:
            return f"the screen shows {element.text[:80]!r}"
        is_touched = touches and _is_near(element, action.touch_yx)
        if is_touched and _BUTTON_WORDS.find(element.text) is not None:
            return f"the touched element is {element.text[:80]!r}"
    return None


def _is_near(element: UiElement, point_yx: tuple[float, float]) -> bool:
    y, x, height, width = element.box
    return y - NEAR <= point_yx[0] <= y + height + NEAR and x - NEAR <= point_yx[1] <= x + width + NEAR
