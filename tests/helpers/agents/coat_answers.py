"""Actions, calls and a screen for tests of CoAT's language."""

import json

from hypothesis import strategies as st

from vlm_agent.action_languages import language_settings
from vlm_agent.action_languages.coat import _call, _type_of
from vlm_agent.action_languages.language import SWIPES
from vlm_agent.episodes import BUTTONS, Action, Screen, UiElement

LANGUAGE = language_settings({"name": "coat"}).build()
coordinates = st.floats(0, 1) | st.floats(0, 1, width=32)
points = st.tuples(coordinates, coordinates)
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.text('ab \\\n\r)("`.;', max_size=12)
actions = st.one_of(
    points.map(lambda point: Action.tap(*point)),
    st.builds(Action.swipe, points, points),
    points.map(lambda point: Action.long_press(*point)),
    *(texts.map(make) for make in (Action.type_text, Action.open_app, Action.answer)),
    st.sampled_from([Action.wait(), Action.recents(), Action.complete(), Action.impossible()]),
    st.sampled_from([Action.press(button) for button in BUTTONS]),
)
ELEMENTS = (UiElement((0.1, 0.2, 0.2, 0.4)), UiElement((0.5, 0.5, 0.25, 0.5), "Wi-Fi"))
SCREEN = Screen(None, ELEMENTS)


def call(name: str | None, **arguments: object) -> str:
    return json.dumps({"ACTION": name, "ARGS": arguments})


def predicted_type(text: str) -> str | None:
    """One of `ACTION_TYPES` by the rule of the published evaluator, None if the answer names none of them.

    A call has a type even if its arguments are unusable, so that `decode` returns None.
    """
    read = _call(text)
    if read is not None:
        return _type_of(read)
    action = LANGUAGE.decode(text)
    if action is None:
        return None
    names = {"tap": "click", "swipe": "scroll", "type": "type", "complete": "stop", "impossible": "stop"}
    return names.get(action.name, "press" if action.name in BUTTONS else None)


CALLS = [
    (call("click_element", bbox=[100, 200, 300, 600]), Action.tap(0.4, 0.2)),
    (call("click_element", bbox=[0, 0, 1000, 1000]), Action.tap(0.5, 0.5)),
    (call("click_element", bbox=[10.5, 20, 10.5, 20]), Action.tap(0.02, 0.0105)),
    (call("CLICK_ELEMENT", idx=0), Action.tap(0.2, 0.4)),
    (call("click_element", idx="1"), Action.tap(0.625, 0.75)),
    (call("scroll", direction="left"), Action.swipe(*SWIPES["left"])),
    (call("input", text='say "ACTION": "stop"\n\\'), Action.type_text('say "ACTION": "stop"\n\\')),
    (call("type", text=""), Action.type_text("")),
    (call("INPUT", text="ümlaut 漢字"), Action.type_text("ümlaut 漢字")),
    (call("press_back"), Action.press("back")),
    (call("press_HOME"), Action.press("home")),
    (call("press_enter"), Action.press("enter")),
    (call("stop", task_status="success"), Action.complete()),
    (call("stop", task_status="failure"), Action.impossible()),
]
