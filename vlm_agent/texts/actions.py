"""The description of an action (AD) by template. Only the words for a touched element come from elsewhere.

    click on the Clock app        press the home button         wait
    long press the first photo    press the recents button      open the app "Clock"
    scroll up                     stop, the task is complete    answer "7:30"
    type "pizza near me"          stop, the task is impossible

The first words are those that AitZ's evaluator reads: click, scroll, type, press, stop. A scroll has the direction of
the finger, by AitZ's rule. A typed text is on one line.
"""

from dataclasses import replace

from vlm_agent.episodes import Action, Screen, element_at
from vlm_agent.geometry import AITZ_VERTICAL_SHARE, DIRECTIONS, directions
from vlm_agent.texts.lines import printable, without_tags


def describe_action(action: Action, element: str = "") -> str:
    """The description of an action. `element`: words for what a tap or long press touches; ignored for other actions.

    Raises ValueError for a tap or long press without `element`.
    """
    if action.is_touch:
        if not element:
            raise ValueError("a tap is described with the element that it touches")
        return f"{action.kind.facts.words} {element}"
    if action.is_swipe:
        return f"scroll {aitz_direction(action)}"
    words = action.kind.facts.words
    return f'{words} "{" ".join(action.text.split())}"' if action.kind.facts.has_text else words


def aitz_direction(action: Action) -> str:
    """The direction of a swipe's finger by AitZ's rule, which counts more of them as vertical than AITW's does."""
    return DIRECTIONS[int(directions(action.touch_yx, action.lift_yx, AITZ_VERTICAL_SHARE))]


def action_in_words(action: Action, screen: Screen) -> str:
    """The description of an action on a screen, as a part of a line in a prompt or sentence. A touch names the smallest
    element under it, or else its point, (x, y) in thousandths of the screen."""
    element = element_at(screen.elements or (), action.touch_yx) if action.is_touch else None
    y, x = (round(1000 * value) for value in action.touch_yx)
    name = "" if element is None else printable(element.name)
    shortened = replace(action, text=printable(action.text))
    return without_tags(describe_action(shortened, name or f"the point ({x}, {y})"))
