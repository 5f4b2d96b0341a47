"""The phone itself: which app is in front, what the system shows over it, and what each action does."""

import random
from dataclasses import dataclass

import numpy as np

from vlm_agent.devices.simulated_phone import chrome
from vlm_agent.devices.simulated_phone.app import App
from vlm_agent.devices.simulated_phone.apps import app_class
from vlm_agent.devices.simulated_phone.canvas import Canvas, Target
from vlm_agent.devices.simulated_phone.page import STATUS_BAR, draw_dialog
from vlm_agent.devices.simulated_phone.theme import Theme, mix, sample_theme
from vlm_agent.devices.simulated_phone.widgets import Buttons, Paragraph, Title
from vlm_agent.devices.simulated_phone.words import APPS, DAYS, LABELS, NAMES, STORE_APPS, SWITCHES
from vlm_agent.episodes import Action, ActionKind, UiElement

FLING = 1.5
"""A page moves this much further than the finger."""

LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class Popup:
    """A system or app dialog that stands in the way; every button of it closes it. `dismiss` is the expert's."""

    title: str
    text: str
    buttons: tuple[str, ...]
    dismiss: str
    sheet: bool = False


POPUPS = (
    ("Update available", "A new version of {app} is ready to install.", ("Later", "Update"), "Later"),
    ("Rate {app}", "Tell others what you think of {app}.", ("Not now", "Rate"), "Not now"),
    ("Allow access?", "Let {app} use your location while it is open.", ("Deny", "Allow"), "Deny"),
    ("We use cookies", "Cookies help {app} to work and to show adverts.", ("Reject", "Accept"), "Reject"),
    ("Welcome to {app}", "Sign in to keep your things on every phone.", ("Skip", "Sign in"), "Skip"),
)


def some_popup(app: str, rng: random.Random) -> Popup:
    """One of `POPUPS` over `app`, as a dialog or a sheet."""
    title, text, buttons, dismiss = rng.choice(POPUPS)
    return Popup(title.format(app=app), text.format(app=app), buttons, dismiss, rng.random() < 0.5)


class SimulatedPhone:
    """A deterministic Android: the same seed and actions give the same pixels.

    `size` is (height, width) in pixels; every AITW action is accepted on every screen and never raises. `theme` is
    drawn from the seed where none is given.
    """

    def __init__(self, seed: int, size: tuple[int, int] = (448, 208), theme: Theme | None = None):
        if min(size) < 64:
            raise ValueError(f"size is {size}; the screen needs at least 64 pixels each way")
        self.seed = seed
        self.size = tuple(size)
        self._given_theme = theme
        self.reset()

    def reset(self) -> None:
        """Back to the state that the seed gives."""
        rng = random.Random(f"phone {self.seed}")
        drawn = sample_theme(rng)
        self.theme = drawn if self._given_theme is None else self._given_theme
        self.installed = [*APPS, *rng.sample(list(STORE_APPS), rng.randint(2, 8))]
        self.catalogue = APPS | STORE_APPS
        self.switches = {name: rng.random() < 0.5 for name in SWITCHES}
        self.quick = rng.sample(list(SWITCHES), rng.choice((6, 9)))
        self.day = f"{rng.choice(DAYS)}, {rng.randint(1, 28)}"
        self.notices = [
            (rng.choice(("Mail", "Messages")), rng.choice(NAMES), rng.choice(LABELS)) for _ in range(rng.randint(0, 2))
        ]
        self.pending: dict[str, Popup] = {}
        self.popup: Popup | None = None
        self.shade = False
        self.focus: str | None = None
        self.replacing = False
        self.recents: list[str] = []
        self.status: ActionKind | None = None
        self.toggled: list[tuple[str, bool]] = []
        self.opened: list[str] = []
        self._apps: dict[str, App] = {}
        self._canvas: Canvas | None = None
        self.front = "Launcher"

    @property
    def at_home(self) -> bool:
        """Whether the launcher is in front, whichever of its pages."""
        return self.front == "Launcher"

    # The Device interface

    def screenshot(self) -> np.ndarray:
        """uint8 (height, width, 3), RGB."""
        return np.array(self.canvas().image)

    def perform(self, action: Action) -> None:
        """Do one action; a status action is only noted (`status`)."""
        kind = action.kind
        if kind is ActionKind.DUAL_POINT:
            self._gesture(action)
        elif kind is ActionKind.TYPE:
            self.type_text(action.text)
        elif kind is ActionKind.PRESS_BACK:
            self.press_back()
        elif kind is ActionKind.PRESS_HOME:
            self.press_home()
        elif kind is ActionKind.PRESS_ENTER:
            self.press_enter()
        else:
            self.status = kind
        self._canvas = None

    # What is on the screen

    def elements(self) -> tuple[UiElement, ...]:
        """AITW-style annotations of the screen as it is."""
        return self.canvas().elements()

    @property
    def activity(self) -> str:
        return self.app(self.front).activity()

    def app(self, name: str) -> App:
        if name not in self._apps:
            self._apps[name] = app_class(name)(self, name, random.Random(f"{self.seed} {name}"))
        return self._apps[name]

    def canvas(self) -> Canvas:
        """The drawn screen; it stays until the next action or `changed()`."""
        if self._canvas is None:
            self._canvas = self._draw()
        return self._canvas

    def changed(self) -> None:
        """Something was set up from outside: draw anew."""
        self._canvas = None

    def _draw(self) -> Canvas:
        canvas = Canvas(self.size, self.theme)
        app = self.app(self.front)
        bottom = canvas.h - chrome.navigation_height(canvas)
        typing = self.focus is not None
        app.draw(canvas, bottom - (chrome.KEYBOARD if typing else 0.0))
        if typing:
            chrome.keyboard(canvas, self, bottom)
        if self.popup is not None:
            draw_dialog(canvas, self._popup_widgets(self.popup), self.popup.sheet, bottom)
        if self.shade:
            chrome.shade(canvas, self)
        ground = None if self.at_home else canvas.image.getpixel((1, min(self.size[0] - 1, canvas.px(bottom) - 1)))
        if self.at_home and app.route.name == "drawer":
            ground = mix(self.theme.background, (0, 0, 0), 0.02)
        chrome.navigation_bar(canvas, self, ground)
        corner = canvas.image.getpixel((1, 1))
        chrome.status_bar(canvas, self, (255, 255, 255) if sum(corner) < 420 else (50, 52, 56))
        return canvas

    def _popup_widgets(self, popup: Popup) -> list:
        buttons = [(label, f"popup:{label}", self.close_popup, label != popup.dismiss) for label in popup.buttons]
        align = "left" if self.theme.fab_x < 0.4 else "right"
        return [Title(popup.title, 30, 14.5), Paragraph(popup.text, 11, 3), Buttons(buttons, align)]

    def close_popup(self) -> None:
        self.popup = None

    # What actions do

    def target_at(self, y: float, x: float) -> Target | None:
        """What a finger at (y, x), in screen fractions, would touch."""
        row, column = y * self.size[0], x * self.size[1]
        for target in reversed(self.canvas().targets):
            left, top, right, bottom = target.hit
            if left <= column <= right and top <= row <= bottom:
                return target
        return None

    def _gesture(self, action: Action) -> None:
        if action.is_tap:
            target = self.target_at(*action.touch_yx)
            if target is not None and target.on_tap is not None:
                target.on_tap()
            elif self.shade and target is not None and not target.key:
                self.shade = False
            return
        self._swipe(action)

    def _swipe(self, action: Action) -> None:
        canvas = self.canvas()
        direction = action.direction
        axis = 0 if direction in ("up", "down") else 1
        length = abs(action.lift_yx[axis] - action.touch_yx[axis]) * (canvas.h, canvas.w)[axis]
        touch_y = action.touch_yx[0] * self.size[0]
        if self.shade:
            self.shade = direction != "up"
        elif self.popup is not None:
            return
        elif direction == "down" and touch_y < canvas.px(STATUS_BAR * 1.6):
            self.shade = True
            self.focus = None
        else:
            self.app(self.front).swiped(canvas, direction, touch_y, length * FLING)

    def type_text(self, text: str) -> None:
        """Type into the field that has the focus; without one nothing happens, as on a phone."""
        if self.focus is None or self.popup is not None or self.shade:
            return
        app = self.app(self.front)
        before = "" if self.replacing else app.fields.get(self.focus, "")
        app.fields[self.focus] = (before + text)[:LONGEST_TEXT]
        self.replacing = False
        app.route.scroll = 0.0
        app.typed(self.focus)

    def type_more(self, letter: str) -> None:
        """One key of the keyboard."""
        self.type_text(letter)

    def erase(self) -> None:
        if self.focus is not None:
            fields = self.app(self.front).fields
            fields[self.focus] = fields.get(self.focus, "")[:-1]

    def press_back(self) -> None:
        if self.shade:
            self.shade = False
        elif self.popup is not None:
            self.popup = None
        elif self.focus is not None:
            self.focus = None
        elif not self.app(self.front).back():
            self.press_home()

    def press_home(self) -> None:
        self.shade, self.popup, self.focus = False, None, None
        self.front = "Launcher"
        self.app("Launcher").to_root()

    def press_recents(self) -> None:
        self.press_home()
        if self.recents:
            self.app("Launcher").push("recents")

    def press_enter(self) -> None:
        if self.focus is not None and self.popup is None and not self.shade:
            self.app(self.front).entered(self.focus)

    def open(self, name: str) -> None:
        """Bring an app to the front, where it was left."""
        self.shade, self.focus = False, None
        self.front = name
        self.changed()
        self.recents = [name, *(other for other in self.recents if other != name)][:4]
        self.opened.append(name)
        self.popup = self.pending.pop(name, None)

    def toggle(self, switch: str) -> None:
        self.switches[switch] = not self.switches[switch]
        self.toggled.append((switch, self.switches[switch]))
