"""Actions that could spend money are detected by the texts on the screen, the activity and the typed text."""

import unicodedata

import pytest

from vlm_agent.devices.acting.purchases import NEAR, purchase_reason
from vlm_agent.episodes import Action, UiElement
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.app import Route

BUY = UiElement((0.8, 0.1, 0.05, 0.3), "Buy now")
ADD = UiElement((0.8, 0.6, 0.05, 0.3), "Add to cart")
PLAIN = UiElement((0.1, 0.1, 0.05, 0.3), "A fine kettle")


def on(*elements, action=None, goal="look around", activity="org.shop/.Product"):
    return purchase_reason(Action.tap(0.5, 0.5) if action is None else action, goal, activity, elements)


def test_only_a_tap_on_a_purchase_button_is_detected():
    assert "Buy now" in on(BUY, ADD, action=Action.tap(0.82, 0.2))
    assert "Buy now" in on(BUY, ADD, action=Action.tap(0.79, 0.2))  # just above its text
    assert on(BUY, ADD, action=Action.tap(0.82, 0.7)) is None
    assert "Buy now" in on(BUY, ADD, action=Action.long_press(0.82, 0.2))


@pytest.mark.parametrize(("dy", "dx"), [(-1, 0), (1, 0), (0, -1), (0, 1)], ids=["above", "below", "left", "right"])
def test_a_tap_within_the_margin_of_a_purchase_button_is_detected_on_each_side(dy, dx):
    _, _, height, width = BUY.box
    middle_y, middle_x = BUY.centre_yx

    def tap(margin: float) -> Action:
        return Action.tap(middle_y + dy * (height / 2 + margin), middle_x + dx * (width / 2 + margin))

    assert "Buy now" in on(BUY, action=tap(NEAR - 0.001))
    assert on(BUY, action=tap(NEAR + 0.001)) is None


def test_the_margin_itself_counts_as_the_button():
    button = UiElement((2 * NEAR, 0.5, 0.25, 0.25), "Buy now")
    assert purchase_reason(Action.tap(NEAR, 0.6), "go", "", (button,)) is not None


@pytest.mark.parametrize(
    "text", ["Card number", "PLACE ORDER", "Choose a payment method", "Zahlungspflichtig bestellen"]
)
@pytest.mark.parametrize("action", [Action.tap(0.1, 0.1), Action.type_text("x"), Action.press("enter")])
def test_every_action_on_a_payment_screen_is_detected(text, action):
    assert text in on(PLAIN, UiElement((0.5, 0.5, 0.1, 0.1), text), action=action)


@pytest.mark.parametrize(
    ("text", "is_screen"),
    [
        *(("立即购买", False), ("去 支付¥12.00", False), ("请选择支付方式", True)),
        *(("立即抢购", False), ("发红包", False), ("前往結帳", False), ("立即購買", False)),
    ],
)
def test_chinese_words_are_detected_within_a_text(text, is_screen):
    element = UiElement((0.4, 0.4, 0.2, 0.2), text)
    assert text in on(element)
    assert (on(element, action=Action.tap(0.9, 0.9)) is not None) == is_screen
    assert purchase_reason(Action.tap(0.5, 0.5), f"帮我{text}", "", None) is not None
    assert on(UiElement((0.4, 0.4, 0.2, 0.2), "我的收藏")) is None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "S’abonner",
            "Confirmer l’achat",
            "Confirmer l\u02bcachat",
            "ＢＵＹ",
            "￥1,200 を支払う",
            "Zahlungs\u00adpflichtig bestellen",
        ),
        *(unicodedata.normalize("NFD", text) for text in ("Réserver", "Método de pago", "SATIN AL", "결제하기")),
        *(
            "Buy\u200bnow",
            "Go Premium",
            "Start subscription",
            "Transfer",
            "Send $50",
            "Acquista ora",
            "Paga",
            "Assinar",
        ),
        *("Afrekenen", "Kup teraz", "Купить", "購入する", "구매하기"),
    ],
)
def test_words_are_detected_in_the_spelling_and_languages_of_phones(text):
    assert on(UiElement((0.4, 0.4, 0.2, 0.2), text)) is not None


def test_a_swipe_that_begins_on_a_purchase_button_is_detected():
    slide = UiElement((0.8, 0.1, 0.1, 0.8), "Slide to pay")
    assert "Slide to pay" in on(slide, action=Action.swipe((0.85, 0.15), (0.85, 0.85)))
    assert on(slide, action=Action.swipe((0.5, 0.5), (0.85, 0.5))) is None


@pytest.mark.parametrize(
    "text",
    [
        *("Paynow", "Buynow", "Paymentmethod", "Choosepaymentmethod", "Placeyourorder", "Place yourorder"),
        *("Confirmandpay", "Jetztkaufen", "PaywithGooglePay", "Buynow$5", "Subscribeto Daily", "Slidetopay"),
    ],
)
def test_words_are_detected_without_the_spaces_that_a_text_reader_drops(text):
    assert on(UiElement((0.4, 0.4, 0.2, 0.2), text)) is not None


@pytest.mark.parametrize(
    "text",
    [
        *("Buyer's guide", "Orderly", "Paying guests of 1920", "Postcard numbering", "Payload", "Paying", "Repaying"),
        *("Rental", "Currentforecast", "Stopupdates", "Border it", "Subscribers", "Upgraded", "Già acquistato"),
    ],
)
def test_parts_of_words_are_not_detected(text):
    assert on(UiElement((0.4, 0.4, 0.2, 0.2), text)) is None


@pytest.mark.parametrize(
    "activity",
    ["com.android.vending/.billing.acquire.LockToPortrait", "com.shop/.CheckoutActivity", "a/b.PaymentSheet"],
)
def test_the_activity_is_detected_without_elements(activity):
    assert activity in purchase_reason(Action.tap(0.5, 0.5), "look around", activity, None)


@pytest.mark.parametrize(
    "action",
    [
        *(Action.press("back"), Action.press("home"), Action.complete(), Action.impossible()),
        *(Action.wait(), Action.recents(), Action.answer("the card is 4111 1111 1111 1111")),
    ],
)
def test_actions_that_touch_nothing_are_never_detected(action):
    assert on(UiElement((0.5, 0.5, 0.1, 0.1), "Place order"), action=action, activity="a/.Checkout") is None


@pytest.mark.parametrize("elements", [None, ()])
def test_without_elements_a_goal_that_mentions_buying_is_detected(elements):
    tap = Action.tap(0.5, 0.5)
    assert "'buy'" in purchase_reason(tap, "Buy a kettle", "org.shop/.Home", elements)
    assert purchase_reason(tap, "Find a kettle", "org.shop/.Home", elements) is None
    assert purchase_reason(tap, "Buy a kettle", "org.shop/.Home", (PLAIN,)) is None


UNNAMED = UiElement((0.4, 0.1, 0.2, 0.8), "", "ICON_BUTTON")


@pytest.mark.parametrize(
    "action", [Action.tap(0.5, 0.5), Action.long_press(0.5, 0.5), Action.swipe((0.5, 0.2), (0.5, 0.8))]
)
def test_a_touch_of_an_unnamed_element_is_detected_by_the_goal(action):
    """A button in a script that the text reader does not know has no text."""
    assert "'купить'" in on(PLAIN, UNNAMED, action=action, goal="купить стул")
    assert on(PLAIN, UNNAMED, action=action, goal="найти стул") is None


@pytest.mark.parametrize("named", [UiElement(UNNAMED.box, "Chairs"), UiElement(UNNAMED.box, "", "ICON_SEARCH")])
def test_a_touch_of_a_named_element_is_not_detected_by_the_goal(named):
    assert on(named, goal="buy a chair") is None
    label = UiElement((0.48, 0.4, 0.04, 0.2), "Chairs")
    assert on(UNNAMED, label, goal="buy a chair") is None


def test_scrolling_over_an_unnamed_element_is_not_detected_by_the_goal():
    for swipe in (Action.swipe((0.5, 0.5), (0.1, 0.5)), Action.swipe((0.5, 0.5), (0.9, 0.5))):
        assert on(PLAIN, UNNAMED, action=swipe, goal="buy a chair") is None


def test_a_touch_outside_of_all_elements_is_detected_by_the_goal_if_they_were_read_from_pixels():
    touch = Action.tap(0.9, 0.9), "buy a chair", "org.shop/.Home", (PLAIN,)
    assert "'buy'" in purchase_reason(*touch, are_read=True)
    assert purchase_reason(*touch) is None


@pytest.mark.parametrize(
    ("text", "is_card"),
    [("4111 1111 1111 1111", True), ("4111-1111-1111-1111", True), ("4111 1111 1111 1112", False), ("12345", False)],
)
def test_a_card_number_is_detected_by_its_check_digit(text, is_card):
    assert (on(PLAIN, action=Action.type_text(text)) is not None) is is_card


@pytest.mark.parametrize(("digits", "is_card"), [(12, False), (13, True), (19, True), (20, False)])
def test_card_numbers_have_13_to_19_digits(digits, is_card):
    """Numbers with a right check digit: 0 … 0 18 has the Luhn sum 8 + 2."""
    text = "18".rjust(digits, "0")
    assert (on(PLAIN, action=Action.type_text(text)) is not None) is is_card


def test_in_the_simulated_shop_only_the_checkout_is_detected():
    phone = SimulatedPhone(3)
    phone.open("Shop")
    shop = phone.app("Shop")
    verdicts = {}
    for route in ("shop_home", "shop_product", "shop_checkout"):
        shop.routes.append(Route(route, shop.shop.deals[0] if route == "shop_product" else None))
        phone.changed()
        verdicts[route] = purchase_reason(Action.press("enter"), "look", phone.activity, phone.elements())
    assert [name for name, why in verdicts.items() if why is not None] == ["shop_checkout"]
