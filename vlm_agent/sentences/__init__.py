"""Vision-language sentences: token ids, labels and screens."""

from dataclasses import dataclass, field, replace

import numpy as np

SCREEN_TOKEN = -1
"""The id of a visual token in `input_ids`; negative, so no vocabulary contains it."""

IGNORED = -100
"""The label of a position without loss."""

NO_ACTION = -1
"""The kind of a token outside supervised actions."""

ROLES = ("action", "thought", "plan", "prompt")
"""The roles of supervised tokens. Accuracy and losses by kind count `action` only."""

ACTION_ROLE = 0
"""The index of `action` in `ROLES`."""

_OF_TOKENS = ("input_ids", "labels", "kinds", "roles", "weights")
"""The fields of a `Sentence` with an entry for each token."""

_OF_SCREENS = ("screens", "element_labels")


@dataclass
class Sentence:
    """Token ids, their labels and the screens whose features replace the `SCREEN_TOKEN`s.

    The lists `input_ids`, `labels`, `kinds`, `roles` and `weights` have one entry per token. `labels`: the id itself
    (unshifted) or `IGNORED`. `kinds`: the index of the action's name in `ACTION_NAMES` for a supervised token of an
    action, else `NO_ACTION`. `roles`: the index in `ROLES`. `weights`: the weight of the token's loss.

    `branches`: (begin, prefix) of each branch, which ends where the next one begins. A branch continues the first
    `prefix` tokens; it reads none of the other tokens before it.

    `screens`: uint8 (3, height, width) each, in reading order. `element_labels`: int64 (tokens per screen,) for each
    screen, for a model with an element loss. `about`: the source of the sentence, for messages.
    """

    input_ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    screens: list[np.ndarray] = field(default_factory=list)
    element_labels: list[np.ndarray] = field(default_factory=list)
    about: str = ""
    roles: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    branches: list[tuple[int, int]] = field(default_factory=list)

    def read(self, ids: list[int]) -> None:
        """Append tokens without a loss."""
        self._append(ids, [IGNORED] * len(ids), NO_ACTION, ACTION_ROLE, 1.0)

    def learn(self, ids: list[int], kind: int = NO_ACTION, role: str = "action", weight: float = 1.0) -> None:
        """Append supervised tokens. Raises ValueError for a role that is not in `ROLES` and for a negative weight."""
        if role not in ROLES:
            raise ValueError(f"the role is {role!r}; it must be one of {', '.join(ROLES)}")
        if weight < 0:
            raise ValueError(f"the loss weight is {weight}; it must be 0 or greater")
        self._append(ids, ids, kind, ROLES.index(role), weight)

    def _append(self, ids: list[int], labels: list[int], kind: int, role: int, weight: float) -> None:
        self.input_ids += ids
        self.labels += labels
        self.kinds += [kind] * len(ids)
        self.roles += [role] * len(ids)
        self.weights += [weight] * len(ids)

    def see(self, screen: np.ndarray, tokens: int) -> None:
        """Append a screen of `tokens` visual tokens, without a loss."""
        self.screens.append(screen)
        self.read([SCREEN_TOKEN] * tokens)

    def branch(self, prefix: int, ids: list[int]) -> None:
        """Append another continuation of the first `prefix` tokens, without a loss. It repeats the last of them, whose
        output predicts its first token."""
        self.branches = [*self.branches, (len(self), prefix - 1)]
        self.read([self.input_ids[prefix - 1], *ids])

    def positions(self) -> list[int]:
        """The position of each token: the number of those that it continues."""
        positions = list(range(len(self)))
        for begin, prefix in self.branches:
            positions[begin:] = range(prefix, prefix + len(self) - begin)
        return positions

    def with_read(self, at: int, ids: list[int]) -> "Sentence":
        """The sentence with further tokens without a loss before token `at`, which must not be inside a screen."""
        more = Sentence()
        more.read(ids)
        changed = replace(self)
        for name in _OF_TOKENS:
            before = getattr(self, name)
            setattr(changed, name, [*before[:at], *getattr(more, name), *before[at:]])
        return changed

    def prefix(self, end: int) -> "Sentence":
        """The first `end` tokens with their screens. `end` must not be inside a screen."""
        is_screen = [id_ == SCREEN_TOKEN for id_ in self.input_ids[:end]]
        screens = sum(now and not before for before, now in zip([False, *is_screen], is_screen, strict=False))
        kept = {name: getattr(self, name)[:end] for name in _OF_TOKENS}
        kept |= {name: getattr(self, name)[:screens] for name in _OF_SCREENS}
        return replace(self, branches=[one for one in self.branches if one[0] < end], **kept)

    def suffix(self, begin: int) -> "Sentence":
        """The tokens from `begin` on with their screens, without branches. `begin` must not be inside a screen."""
        screens = len(self.prefix(begin).screens)
        kept = {name: getattr(self, name)[begin:] for name in _OF_TOKENS}
        return replace(self, **kept, **{name: getattr(self, name)[screens:] for name in _OF_SCREENS})

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def prompt_length(self) -> int:
        """The number of tokens before the first label."""
        return next((at for at, label in enumerate(self.labels) if label != IGNORED), len(self))

    @property
    def supervised(self) -> int:
        """The number of tokens with a loss."""
        return sum(label != IGNORED for label in self.labels)
