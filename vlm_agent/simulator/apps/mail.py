"""Mail: an inbox with stars, and a page per letter."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from vlm_agent.simulator.app import App, Route
from vlm_agent.simulator.drawing.page import MENU, SEARCH, Page
from vlm_agent.simulator.drawing.theme import ACCENTS
from vlm_agent.simulator.drawing.widgets import Buttons, Field, Paragraph, Row, Space, Title, Widget
from vlm_agent.simulator.words import CITIES, DAYS, LABELS, NAMES


@dataclass
class Letter:
    sender: str
    subject: str
    text: str
    starred: bool
    read: bool


class Mail(App):
    def fill(self, rng: random.Random) -> None:
        senders = rng.sample(NAMES, rng.randint(9, 14))
        self.inbox = [
            Letter(
                name,
                f"{rng.choice(LABELS).capitalize()} on {rng.choice(DAYS)}",
                f"Shall we meet in {rng.choice(CITIES)}?",
                rng.random() < 0.25,
                rng.random() < 0.5,
            )
            for name in senders
        ]
        self.colours = {name: rng.choice(ACCENTS) for name in NAMES}
        self.archived: list[str] = []
        self.deleted: list[str] = []
        self.sent: list[tuple[str, str]] = []
        self.bar = rng.random() < 0.5
        self.below = rng.random() < 0.5

    def durable(self) -> Iterable[str]:
        letters = (f"letter from {letter.sender}{', starred' * letter.starred}" for letter in self.inbox)
        archived = (f"archived letter from {sender}" for sender in self.archived)
        return (*letters, *archived, *(f"sent to {name}: {text.strip().casefold()}" for name, text in self.sent))

    def letter(self, sender: str) -> Letter | None:
        return next((letter for letter in self.inbox if letter.sender == sender), None)

    def _star(self, letter: Letter) -> None:
        letter.starred = not letter.starred

    def _open(self, letter: Letter) -> None:
        letter.read = True
        self.push("letter", letter)

    def _home(self, route: Route) -> Page:
        rows = [
            Row(
                letter.sender,
                letter.subject,
                letter.sender[0],
                self.colours[letter.sender],
                key=f"letter:{letter.sender}",
                bold=not letter.read,
                on_tap=partial(self._open, letter),
                tall=6,
                trail_glyph="star" if letter.starred else "star_outline",
                trail_key=f"star:{letter.sender}",
                on_trail=partial(self._star, letter),
            )
            for letter in self.inbox
        ]
        fab = ("pencil", "compose", None)
        if self.bar:
            return Page(rows, "Inbox", nav=MENU, actions=[SEARCH], fab=fab)
        return Page(rows, bar=False, top=[Field("search", "Search in mail", "", False, None, "menu")], fab=fab)

    def _leave(self, letter: Letter, where: list[str]) -> None:
        self.inbox.remove(letter)
        where.append(letter.sender)
        self.pop()

    def _letter(self, route: Route) -> Page:
        letter: Letter = route.about
        actions = [
            ("archive", "archive", lambda: self._leave(letter, self.archived)),
            ("trash", "delete", lambda: self._leave(letter, self.deleted)),
            ("star" if letter.starred else "star_outline", "star", lambda: self._star(letter)),
        ]
        if self.below:
            actions.reverse()
        buttons = [("Reply", "reply", lambda: self._answer(letter), False), ("Forward", "forward", None, False)]
        body: list[Widget] = [
            Title(letter.subject, 44, 16),
            Row(letter.sender, "to me", letter.sender[0], self.colours[letter.sender], trail=self.phone.theme.clock),
            Paragraph(letter.text, 12, 3, False),
            Space(10, True),
            Paragraph(f"See you, {letter.sender}", 12, 1, False),
            Buttons(buttons, "left" if self.below else "right", 50),
        ]
        return Page(body, nav=self.up, actions=actions)

    def _answer(self, letter: Letter) -> None:
        self.fields.pop("reply", None)
        self.push("reply", letter)

    def _reply(self, route: Route) -> Page:
        letter: Letter = route.about
        field = self.field("reply", "Write mail", glyph="")
        body: list[Widget] = [Row("To", letter.sender), Row("Subject", letter.subject), field]
        return Page(body, "Reply", nav=self.up, actions=[("send", "send", lambda: self._send(letter))])

    def _send(self, letter: Letter) -> None:
        text = self.fields.pop("reply", "")
        if text:
            self.sent.append((letter.sender, text))
            self.pop()
