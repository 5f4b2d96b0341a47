"""Reports to look at: small episodes, and a reader of the page that was written about them."""

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa

from vlm_agent.datasets.sources.aitw import SUBSETS
from vlm_agent.episodes import Action, Episode, Step, UiElement

EVIL = '<script>alert("pwned")</script></noscript><img src=x onerror=alert(1)>'
FACTS = {"run": "demo & more", "date": "2024-05-01"}


class Shards:
    """What the report asks of a ShardDataset. `source`: the data set's name in its manifest."""

    directory = Path("shards")

    def __init__(self, episodes, source="aitw"):
        self._episodes = episodes
        self.manifest = {"source": source}
        self.ids = tuple(episode.id for episode in episodes)
        self.screen_sizes = [[step.screenshot.shape[:2] for step in episode.steps] for episode in episodes]

    def __getitem__(self, index):
        return self._episodes[index]

    def table(self, columns):
        return pa.table({name: [getattr(episode, name) for episode in self._episodes] for name in columns})


class Page(HTMLParser):
    """Tags with their attributes, the text outside of styles and scripts, and the tables.

    `tables` are (attributes of the table, column heads, {row head: cells}), where a cell is its texts: the number, and
    the interval under it.
    """

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.tables, self._open, self._cell = [], "", [], [], None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self._open.append(tag)
        if tag == "table":
            self.tables.append((attributes, [], {}))
        if tag in ("th", "td"):
            self._cell = []
            if attributes.get("scope") == "col":
                self.tables[-1][1].append(self._cell)
            elif attributes.get("scope") == "row":
                self._row = self.tables[-1][2].setdefault(len(self.tables[-1][2]), [self._cell])
            elif tag == "td":
                self._row.append(self._cell)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass
        if tag in ("th", "td"):
            self._cell = None

    def handle_data(self, data):
        if "style" not in self._open and "script" not in self._open:
            self.text += data
        if self._cell is not None and data.strip():
            self._cell.append(data.strip())

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def table(self, **data):
        """{row head: {column head: cell}} of the one table with these data attributes."""
        wanted = {f"data-{name}": value for name, value in data.items()}
        (found,) = [table for table in self.tables if wanted.items() <= table[0].items()]
        _, columns, rows = found
        names = [" ".join(column) for column in columns]
        return {row[0][0]: dict(zip(names, row[1:], strict=True)) for row in rows.values()}


def made_episodes(count, size=(48, 24)):
    """Episodes of three steps each (a tap, a swipe, and text or the end), in all subsets; every screen is another."""
    element = UiElement((0.15, 0.15, 0.2, 0.2), "a button", "ICON_HOME")
    text = UiElement((0.6, 0.1, 0.1, 0.5), "words", "TEXT")
    episodes = []
    for number in range(count):
        last = Action.type_text("milk") if number % 2 else Action.complete()
        actions = (Action.tap(0.2, 0.2), Action.swipe((0.8, 0.5), (0.2, 0.5)), last)
        colours = ((number % 251, number // 251, 80 * step) for step in range(len(actions)))
        steps = tuple(
            Step(np.full((*size, 3), colour, np.uint8), action, (element, text))
            for colour, action in zip(colours, actions, strict=True)
        )
        episodes.append(Episode(f"e{number:04d}", SUBSETS[number % 5], f"goal number {number}", steps))
    return episodes
