import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from vlm_agent.drawing import shapes
from vlm_agent.drawing.actions import EXPERT, PREDICTED, describe, draw_action, draw_elements, draw_touched
from vlm_agent.drawing.contact_sheet import contact_sheet
from vlm_agent.episodes import Action, Episode, Step, UiElement
from vlm_agent.errors import UserError

LONG_PRESS = Action.long_press(0.25, 0.5)
ACTIONS = (
    Action.tap(0.25, 0.5),
    Action.swipe((0.8, 0.5), (0.2, 0.5)),
    Action.type_text("wireless “headphones” 👋\n" * 9),
    Action.press("back"),
    Action.complete(),
    Action.impossible(),
)
LATER_ACTIONS = (LONG_PRESS, Action.open_app("Mail"), Action.wait(), Action.recents(), Action.answer("42"))


def _screen(shade=255, size=(401, 801)):
    return Image.new("RGB", size, (shade,) * 3)


def _changed(before, after):
    """The pixels in which two images differ, as rows (y, x)."""
    return np.argwhere((np.asarray(before) != np.asarray(after)).any(axis=2))


def _has(image, colour):
    return (np.asarray(image) == colour).all(axis=2).any()


@pytest.mark.parametrize("shade", [0, 255])
@pytest.mark.parametrize("action", ACTIONS + LATER_ACTIONS, ids=lambda action: action.name)
def test_every_action_is_visible_on_light_and_dark_and_the_screen_is_not_modified(action, shade):
    screen = _screen(shade)
    drawn = draw_action(screen, action, EXPERT)
    assert _has(drawn, EXPERT) and drawn.size == screen.size
    assert shade == 255 or _has(drawn, shapes.WHITE)
    assert len(_changed(screen, _screen(shade))) == 0


def test_a_tap_is_drawn_around_its_point_and_nowhere_far():
    screen = _screen(90)
    drawn = draw_action(screen, Action.tap(0.25, 0.5), EXPERT)
    assert _has(drawn, EXPERT)
    distances = np.linalg.norm(_changed(screen, drawn) - [200, 200], axis=1)
    assert distances.max() < 0.1 * screen.width
    assert distances.min() > 0.04 * screen.width, "what lies under the finger stays visible"


BOXES = (
    (0.4, 0.3, 0.03, 0.2),
    (0.0, 0.0, 0.05, 0.3),
    (0.96, 0.6, 0.04, 0.4),
    (0.5, 0.0, 0.04, 1.0),
    (0.53, 0.4, -0.1, -0.3),
)


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("label", [None, "withheld"])
@pytest.mark.parametrize("kind", [Action.tap, Action.long_press])
def test_no_mark_covers_the_element_that_it_marks(box, label, kind):
    y, x, height, width = box
    noise = np.random.default_rng(0).integers(0, 256, (801, 401, 3), np.uint8)
    screen, point = Image.fromarray(noise), (y + height / 3, x + width / 3)
    drawn = draw_action(screen, kind(*point), EXPERT, label, elements=(UiElement(box, "Green cushion"),))
    bottom, right = y + height, x + width
    inside = np.s_[math.ceil(y * 800) : int(bottom * 800) + 1, math.ceil(x * 400) : int(right * 400) + 1]
    assert np.array_equal(np.asarray(drawn)[inside], noise[inside])
    assert _has(drawn, EXPERT)


def test_ticks_show_where_an_element_is_tapped():
    element = UiElement((0.4, 0.2, 0.1, 0.6), "Save")
    for x in (0.3, 0.7):
        drawn = draw_action(_screen(), Action.tap(0.45, x), EXPERT, elements=(element,))
        ys, xs = _changed(_screen(), drawn).T
        assert np.median(xs[ys == ys.min()]) == pytest.approx(400 * x, abs=2)
        assert np.median(ys[xs == xs.min()]) == pytest.approx(360, abs=2)


def test_a_long_press_is_drawn_at_its_point_and_labelled():
    screen, size = _screen(90), _screen().size
    tapped, pressed = (draw_action(screen, action, EXPERT) for action in (Action.tap(0.25, 0.5), LONG_PRESS))
    assert _has(pressed, EXPERT)
    assert len(_changed(tapped, pressed)) > 0
    assert _changed(tapped, pressed)[:, 0].max() < size[1] / 2, "the label stands beside the gesture"


def test_a_swipe_runs_from_touch_to_lift_with_its_head_at_the_end():
    screen = _screen(90)
    drawn = draw_action(screen, Action.swipe((0.8, 0.5), (0.2, 0.5)), EXPERT)
    ys, xs = _changed(screen, drawn).T
    assert ys.min() == pytest.approx(160, abs=6) and ys.max() == pytest.approx(640, abs=20)
    head, shaft = (np.ptp(xs[ys == y]) for y in (180, 400))
    assert head > 1.5 * shaft


@pytest.mark.parametrize("point", [(0.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
def test_marks_at_the_edge_stay_on_the_screen(point):
    assert _has(draw_action(_screen(), Action.tap(*point), EXPERT, "expert"), EXPERT)
    assert _has(draw_action(_screen(), Action.swipe(point, (0.5, 0.5)), EXPERT), EXPERT)


def test_a_label_adds_its_words():
    screen = _screen(90)
    plain, labelled = (draw_action(screen, Action.tap(0.5, 0.5), EXPERT, label) for label in (None, "expert"))
    assert len(_changed(screen, labelled)) > len(_changed(screen, plain))


def test_other_image_modes_become_rgb():
    assert draw_action(Image.new("RGBA", (50, 50)), Action.complete(), EXPERT).mode == "RGB"


def test_elements_are_outlined_where_they_are_whatever_their_numbers():
    elements = (
        UiElement((0.5, 0.25, 0.1, 0.5), "Suche 🔍"),
        UiElement((0.9, 0.95, -0.1, -0.2), "", "ICON_HOME"),
        UiElement((2.0, 2.0, 5.0, 5.0)),
        UiElement((1e30, 1e30, 1e30, -1e38)),
    )
    screen = _screen()
    drawn = draw_elements(screen, elements)
    white = (255, 255, 255)
    assert drawn.getpixel((100, 450)) != white and drawn.getpixel((200, 450)) == white
    assert drawn.getpixel((300, 680)) != white
    assert drawn.getpixel((400, 800)) == white  # elements beyond the screen are not drawn
    assert len(_changed(screen, _screen())) == 0


def test_a_touched_element_is_marked_around_it_and_stays_visible():
    screen, element = _screen(), UiElement((0.4, 0.3, 0.1, 0.2), "Save")
    drawn = draw_touched(screen, Action.tap(0.45, 0.35), (UiElement((0, 0, 1, 1), "all"), element))
    (top, left), (bottom, right) = (_changed(screen, drawn).min(axis=0), _changed(screen, drawn).max(axis=0))
    assert 0.38 < top / 800 < 0.4 < 0.5 < bottom / 800 < 0.52
    assert 0.28 < left / 400 < 0.3 < 0.5 < right / 400 < 0.53
    inside = np.asarray(drawn)[321:400, 121:200]
    assert (inside == 255).all()


@pytest.mark.parametrize("elements", [(), (UiElement((0, 0, 1, 1), "all"),)])
@pytest.mark.parametrize("point", [(0.5, 0.5), (0.0, 1.0)])
def test_a_touch_without_a_small_element_is_marked_with_a_ring(elements, point):
    drawn = draw_touched(_screen(), Action.long_press(*point), elements)
    assert _has(drawn, PREDICTED)
    y, x = round(point[0] * 800), round(point[1] * 400)
    assert np.asarray(drawn)[y, x].tolist() == [255, 255, 255]
    assert np.abs(_changed(_screen(), drawn) - (y, x)).max() < 40


def test_an_element_is_marked_for_touches_alone():
    with pytest.raises(ValueError, match="press back"):
        draw_touched(_screen(), Action.press("back"), ())


def _episode(count, size=(240, 120), goal="Buy a phone"):
    steps = tuple(
        Step(np.full((*size, 3), 20 * number % 256, np.uint8), ACTIONS[number % len(ACTIONS)])
        for number in range(count)
    )
    return Episode("7", "web_shopping", goal, steps)


def test_a_sheet_puts_short_episodes_in_one_row_and_long_ones_in_even_rows():
    one, four, many = (contact_sheet(_episode(count), height=300) for count in (1, 4, 18))
    assert one.height == pytest.approx(four.height, abs=50) and four.width > one.width
    assert many.width <= 1600 + 2 * 32 and many.height > 2 * 300
    assert four.width < many.width


def test_a_sheet_shows_the_screens_with_their_actions():
    episode = _episode(4)
    sheet = contact_sheet(episode, ["tap", "swipe", "type", "back"], height=300)
    assert _has(sheet, EXPERT)
    for step in episode.steps:
        assert _has(sheet, tuple(step.screenshot[0, 0]))


def test_long_goals_and_captions_do_not_widen_the_sheet():
    short, long = (contact_sheet(_episode(3, goal=goal), height=300) for goal in ("Buy", "Buy a very " + "long " * 200))
    assert short.width == long.width and short.height < long.height
    assert contact_sheet(_episode(3), ["word" * 200] * 3, height=300).width == short.width


def test_goals_and_names_of_many_lines_and_words_are_drawn_in_a_moment():
    measured = mock.Mock(wraps=shapes.font(16))
    assert shapes.wrap("a " * 60_000, measured, 200, lines=3)[2].endswith("…")
    assert measured.getlength.call_count < 200
    assert contact_sheet(replace(_episode(1), id="two\nlines"), height=200).height > 200


def test_an_extremely_wide_screen_does_not_widen_the_sheet():
    assert contact_sheet(_episode(1, size=(1, 9000)), height=100).width < 1000


def test_screens_of_different_sizes_share_a_sheet():
    steps = _episode(2).steps + _episode(2, size=(120, 240)).steps
    assert contact_sheet(Episode("7", "general", "", steps), height=200).height > 200


@pytest.mark.parametrize(
    ("episode", "captions", "error", "reason"),
    [
        (Episode("7", "general", "", ()), None, UserError, "no screens"),
        (Episode("7", "general", "", (Step(None, Action.complete()),)), None, UserError, "no screens"),
        (_episode(2), ["one"], ValueError, "2 steps but 1 captions"),
    ],
)
def test_the_error_of_a_sheet_that_cannot_be_drawn_names_the_reason(episode, captions, error, reason):
    with pytest.raises(error, match=reason):
        contact_sheet(episode, captions)


def test_actions_are_described_in_a_few_words():
    words = [describe(action) for action in (ACTIONS[0], ACTIONS[1], Action.type_text('a "b"'), *ACTIONS[3:])]
    assert words == ["tap", "swipe up", r'type "a \"b\""', "press back", "complete", "impossible"]
    later = ["long press", 'open app "Mail"', "wait", "recents", 'answer "42"']
    assert [describe(action) for action in LATER_ACTIONS] == later


def test_text_is_shortened_to_what_fits():
    letters = shapes.font(16)
    assert shapes.shorten("short", letters, 500) == "short"
    shortened = shapes.shorten("a very long line of words", letters, 80)
    assert shortened.endswith("…") and letters.getlength(shortened) <= 80
    lines = shapes.wrap("several words that need a few lines and then some", letters, 90, lines=3)
    assert len(lines) == 3 and all(letters.getlength(line) <= 90 for line in lines)
