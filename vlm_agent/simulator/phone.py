"""The simulated phone: the foreground app, the system UI over it, and the effect of each action."""

import hashlib
import pickle
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from PIL import Image

from vlm_agent.devices.errors import DeviceError
from vlm_agent.episodes import Action, ActionKind, UiElement, Widget
from vlm_agent.simulator import chrome
from vlm_agent.simulator.app import App
from vlm_agent.simulator.apps import APP_CLASSES
from vlm_agent.simulator.apps.generic import GenericApp
from vlm_agent.simulator.drawing.canvas import Canvas, Tab, Target
from vlm_agent.simulator.drawing.page import STATUS_BAR, draw_dialog
from vlm_agent.simulator.drawing.theme import Colour, Theme, mix, sample_theme
from vlm_agent.simulator.drawing.widgets import Buttons, Paragraph, Title
from vlm_agent.simulator.words import APPS, DAYS, LABELS, NAMES, STORE_APPS, SWITCHES

SIZE = (448, 208)
"""The default (height, width) of the screen in pixels."""

AppKind = TypeVar("AppKind", bound=App)

FLING = 1.5
"""The scroll distance of a swipe, relative to the distance that the finger moves."""

LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class Popup:
    """A dialog of the system or an app. Every button closes it; the expert presses `dismiss`."""

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


def random_popup(app: str, rng: random.Random, shuffle_buttons: bool = False) -> Popup:
    """One of `POPUPS` for `app`, as a dialog or a sheet. `shuffle_buttons`: the order of its buttons is random too."""
    title, text, buttons, dismiss = rng.choice(POPUPS)
    if shuffle_buttons and rng.random() >= 0.5:
        buttons = buttons[::-1]
    return Popup(title.format(app=app), text.format(app=app), buttons, dismiss, rng.random() < 0.5)


MAX_SCALE = 8
"""The largest multiple of the default size, a screen of 3,584 × 1,664 pixels."""


def check_size(size: tuple[int, int]) -> tuple[int, int]:
    """(height, width). Raises DeviceError for a side of fewer than 64 pixels."""
    if min(size) < 64:
        raise DeviceError(f"size is {size}; height and width must be 64 pixels or more")
    return size[0], size[1]


def check_scale(scale: int) -> int:
    """The scale. Raises DeviceError for another one than 1 to `MAX_SCALE`."""
    if not 1 <= scale <= MAX_SCALE:
        raise DeviceError(f"scale is {scale}; it must be from 1 to {MAX_SCALE}")
    return scale


class SimulatedPhone:
    """A deterministic Android phone: the same seed and actions give the same pixels.

    `size`: (height, width) in pixels, 64 or more. `theme`: by default sampled from the seed. `scale`: screenshots are
    rendered at this multiple of `size`, where small texts are readable; annotations, targets and the effects of actions
    do not depend on it. `perform` accepts every action on every screen and never raises. Raises DeviceError for a
    smaller `size` or another `scale` than 1 to `MAX_SCALE`.
    """

    def __init__(self, seed: int, size: tuple[int, int] = SIZE, theme: Theme | None = None, scale: int = 1) -> None:
        self.seed = seed
        self.size = check_size(size)
        self.scale = check_scale(scale)
        self._theme_override = theme
        self.reset()

    def reset(self) -> None:
        """Resets to the initial state of the seed."""
        rng = random.Random(f"phone {self.seed}")
        random_theme = sample_theme(rng)  # always, so that the rest of the state does not depend on `theme`
        self.theme = random_theme if self._theme_override is None else self._theme_override
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
        self.answer: str | None = None
        self.toggle_history: list[tuple[str, bool]] = []  # (switch, is on after the change)
        self.open_history: list[str] = []  # names of apps
        self._apps: dict[str, App] = {}
        self._canvas: Canvas | None = None
        self.front = "Launcher"

    def fork(self) -> "SimulatedPhone":
        """A copy that continues like this phone, pixel by pixel, and shares nothing with it: to try several
        continuations of one state."""
        return pickle.loads(pickle.dumps(self, pickle.HIGHEST_PROTOCOL))  # noqa: S301 (its own bytes, in memory)

    def __getstate__(self) -> dict:
        """Without the drawn screen, whose targets are closures."""
        return self.__dict__ | {"_canvas": None}

    def digest(self) -> bytes:
        """A hash of the screen and of what lasts (`durable`).

        Phones with equal digests show an agent the same and differ in nothing that a goal changes for good: the steps
        of a group that start from one digest are compared with each other (anchor states of GiGPO, arXiv 2505.10978).
        """
        lasting = repr(sorted(self.durable().items())).encode()
        return hashlib.sha256(self.screenshot().tobytes() + lasting).digest()

    @property
    def shown(self) -> str | None:
        """The app on the screen; None under the quick settings."""
        return None if self.shade else self.front

    def shows(self, app: str, page: str, about: object = None) -> bool:
        """Whether the screen shows this page of the app, about this subject (any if None), in any case of letters."""
        route = self.app(app).route
        is_about = about is None or str(route.about).casefold() == str(about).casefold()
        return self.shown == app and route.name == page and is_about

    @property
    def at_home(self) -> bool:
        """Whether the launcher is in the foreground, on any of its pages."""
        return self.front == "Launcher"

    # The Device interface

    def screenshot(self) -> np.ndarray:
        """uint8 (scale × height, scale × width, 3), RGB."""
        canvas = self.canvas()
        return np.array(canvas.image if self.scale == 1 else self._magnified())

    def perform(self, action: Action) -> None:
        """Performs one action; see `Device.perform`.

        Long presses and waiting have no effect. OPEN_APP with the name of an app that is not installed does nothing.
        """
        if action.is_status:
            self.status = action.kind
        else:
            _EFFECTS[action.kind](self, action)
        self._canvas = None

    # The screen

    def elements(self) -> tuple[UiElement, ...]:
        """Annotations of the current screen as in AITW: OCR boxes of texts, and icons with types `ICON_…`."""
        return self.canvas().elements()

    def widgets(self) -> tuple[Widget, ...]:
        """The widgets of the current screen: truth for training and tests, never for an agent."""
        return self.canvas().widgets()

    def tabs(self) -> tuple[Tab, ...]:
        """The tabs of the current screen, from left to right: truth for training and tests, never for an agent."""
        return tuple(self.canvas().tabs)

    @property
    def activity(self) -> str:
        return self.app(self.front).activity()

    def app(self, name: str) -> App:
        """The app with this name; its contents are created at the first call."""
        if name not in self._apps:
            self._apps[name] = APP_CLASSES.get(name, GenericApp)(self, name, random.Random(f"{self.seed} {name}"))
        return self._apps[name]

    def the(self, kind: type[AppKind]) -> AppKind:
        """The app of class `kind`, one of `APP_CLASSES`, such as `Clock`."""
        app = self.app(next(name for name, app_kind in APP_CLASSES.items() if app_kind is kind))
        if not isinstance(app, kind):
            raise TypeError(f"{app.name} is not an instance of {kind.__name__}")
        return app

    def durable(self) -> Counter[str]:
        """How often the phone has each thing that lasts: installed apps, switches that are on, and what its apps name
        (`App.durable`). A goal's effect, and an unwanted one, is a difference of two of these."""
        lines = [f"{name} is installed" for name in self.installed]
        lines += [f"{name} is on" for name, is_on in self.switches.items() if is_on]
        return Counter([*lines, *(f"{name}: {line}" for name in APP_CLASSES for line in self.app(name).durable())])

    def canvas(self) -> Canvas:
        """The current screen, cached until the next action or `changed()`."""
        if self._canvas is None:
            self._canvas = self._draw(self.size)
        return self._canvas

    def _magnified(self) -> Image.Image:
        """The screen at `scale`. Drawing clamps the scroll position by limits that depend on the rounding to pixels, so
        the state of the smaller drawing is restored."""
        route = self.app(self.front).route
        kept = route.scroll, route.limit
        canvas = self._draw((self.scale * self.size[0], self.scale * self.size[1]))
        route.scroll, route.limit = kept
        return canvas.image

    def changed(self) -> None:
        """Discard the cached screen; call it after changing the phone's state directly."""
        self._canvas = None

    def _draw(self, size: tuple[int, int]) -> Canvas:
        canvas = Canvas(size, self.theme)
        app = self.app(self.front)
        bottom = canvas.h - chrome.navigation_height(canvas)
        typing = self.focus is not None
        app.draw(canvas, bottom - (chrome.KEYBOARD if typing else 0.0))
        if typing:
            chrome.keyboard(canvas, self, bottom)
        if self.popup is not None:
            popup, align = self.popup, "left" if self.theme.fab_x < 0.4 else "right"
            buttons = [(label, f"popup:{label}", self.close_popup, label != popup.dismiss) for label in popup.buttons]
            widgets = [Title(popup.title, 30, 14.5), Paragraph(popup.text, 11, 3), Buttons(buttons, align)]
            draw_dialog(canvas, widgets, popup.sheet, bottom)
        if self.shade:
            chrome.shade(canvas, self)
        ground = None if self.at_home else _pixel(canvas, min(size[0] - 1, canvas.px(bottom) - 1))
        if self.at_home and app.route.name == "drawer":
            ground = mix(self.theme.background, (0, 0, 0), 0.02)
        chrome.navigation_bar(canvas, self, ground)
        corner = _pixel(canvas, 1)
        chrome.status_bar(canvas, self, (255, 255, 255) if sum(corner) < 420 else (50, 52, 56))
        return canvas

    def close_popup(self) -> None:
        self.popup = None

    # Effects of actions

    def target_at(self, y: float, x: float) -> Target | None:
        """The topmost target at the point (y, x) in screen fractions, or None."""
        row, column = y * self.size[0], x * self.size[1]
        for target in reversed(self.canvas().targets):
            left, top, right, bottom = target.hit
            if left <= column <= right and top <= row <= bottom:
                return target
        return None

    def gesture(self, action: Action) -> None:
        """The effect of a tap or swipe."""
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
        if direction is None:
            return
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
        """Type into the focused field; no effect if no field has the focus."""
        if self.focus is None or self.popup is not None or self.shade:
            return
        app = self.app(self.front)
        before = "" if self.replacing else app.fields.get(self.focus, "")
        app.fields[self.focus] = (before + text)[:LONGEST_TEXT]
        self.replacing = False
        app.route.scroll = 0.0

    def erase(self) -> None:
        """Delete the selected text of the focused field (`App.focus`), or else its last character."""
        if self.focus is not None:
            fields = self.app(self.front).fields
            fields[self.focus] = "" if self.replacing else fields.get(self.focus, "")[:-1]
            self.replacing = False

    def press_back(self) -> None:
        """Close quick settings, else the dialog, else the keyboard, else the page, else the app."""
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
        """Show the list of recent apps, or the home screen if no app has been opened."""
        self.press_home()
        if self.recents:
            self.app("Launcher").push("recents")

    def press_enter(self) -> None:
        if self.focus is not None and self.popup is None and not self.shade:
            self.app(self.front).entered(self.focus)

    def open_by_name(self, name: str) -> None:
        """Open the installed app with this name, ignoring case; no effect for other names."""
        app = next((app for app in self.installed if app.casefold() == name.strip().casefold()), None)
        if app is not None:
            self.open(app)

    def open(self, name: str) -> None:
        """Bring an app to the foreground, on the page that it showed last."""
        self.shade, self.focus = False, None
        self.front = name
        self.changed()
        self.recents = [name, *(other for other in self.recents if other != name)][:4]
        self.open_history.append(name)
        self.popup = self.pending.pop(name, None)

    def stop(self, name: str) -> None:
        """End an app: its next start shows its first page. The home screen replaces it if it is in the foreground."""
        focus = self.focus
        self.app(name).to_root()
        if self.front == name:
            self.press_home()
        else:
            self.focus = focus
        self.changed()

    def toggle(self, switch: str) -> None:
        self.switches[switch] = not self.switches[switch]
        self.toggle_history.append((switch, self.switches[switch]))


def _pixel(canvas: Canvas, y: int) -> Colour:
    """The colour near the left edge of row `y`."""
    colour = canvas.image.getpixel((1, y))
    if not isinstance(colour, tuple):
        raise TypeError(f"the screen is not RGB: {canvas.image.mode}")
    return colour[0], colour[1], colour[2]


_EFFECTS: dict[ActionKind, Callable[[SimulatedPhone, Action], None]] = {
    ActionKind.DUAL_POINT: lambda phone, action: phone.gesture(action),
    ActionKind.TYPE: lambda phone, action: phone.type_text(action.text),
    ActionKind.PRESS_BACK: lambda phone, action: phone.press_back(),
    ActionKind.PRESS_HOME: lambda phone, action: phone.press_home(),
    ActionKind.PRESS_ENTER: lambda phone, action: phone.press_enter(),
    ActionKind.LONG_PRESS: lambda phone, action: None,
    ActionKind.OPEN_APP: lambda phone, action: phone.open_by_name(action.text),
    ActionKind.WAIT: lambda phone, action: None,
    ActionKind.RECENTS: lambda phone, action: phone.press_recents(),
    ActionKind.ANSWER: lambda phone, action: setattr(phone, "answer", action.text),
}
"""Action kind → effect, for every kind except the status actions."""
