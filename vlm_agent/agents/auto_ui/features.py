"""Features of screens: stored ones, or computed when they are needed.

Stored features are found by a digest of the screen's pixels, so that changed pixels, such as the grey screens of a
control, never receive the features of the screen that they replace.
"""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch

from vlm_agent.errors import CheckpointError, UserError
from vlm_agent.models.features import Extractor, load_trained_extractor
from vlm_agent.models.features.store import FeatureStore, pixel_digest
from vlm_agent.recipe.model import FeatureSettings

CACHE_BYTES = 256 << 20
"""Memory for computed features: 3,500 screens of 196 vectors of 192 numbers."""

_AT_ONCE = 16
"""Screens in one forward pass of an extractor."""


@dataclass(frozen=True, eq=False)
class LookedUp:
    """A screen before its features are computed: `features` from the store, float16 (T, D), or else `pixels`.

    `pixels`: uint8, as the lookup's `preprocess` returns them, or the screenshot itself without it.
    """

    features: np.ndarray | None
    pixels: np.ndarray | None = None


class FeatureLookup:
    """Finds screens in the store, and preprocesses the others. Needs no model and pickles, for loader processes.

    A screen that several steps or controls contain is looked up once: the results are kept by array identity until the
    screen is garbage-collected.
    """

    def __init__(self, store: FeatureStore | None, preprocess: Callable[[np.ndarray], np.ndarray] | None) -> None:
        self._store, self._preprocess = store, preprocess
        self._known: dict[int, LookedUp] = {}

    def __call__(self, screenshot: np.ndarray | None) -> LookedUp:
        """`screenshot`: uint8 (height, width, 3). Raises UserError for a screen without pixels."""
        if screenshot is None:
            raise UserError("this agent reads screenshots, and this source has none")
        key = id(screenshot)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._look_up(screenshot)
            weakref.finalize(screenshot, self._known.pop, key, None).atexit = False
        return found

    def _look_up(self, screenshot: np.ndarray) -> LookedUp:
        stored = None if self._store is None else self._store.find(screenshot)
        if stored is not None:
            return LookedUp(np.array(stored))
        # A copy, or the entry would keep the screenshot, whose end removes it.
        return LookedUp(None, screenshot.copy() if self._preprocess is None else self._preprocess(screenshot))

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_known": {}}


class ScreenFeatures:
    """The features that one model reads; thread-safe. Computed ones are cached by pixels, up to `cache_bytes`.

    `load` returns the extractor. With a `store` it is called at the first screen that is not stored, because the
    extractor may be much larger than the model.
    """

    def __init__(
        self, load: Callable[[], Extractor], store: FeatureStore | None = None, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._load, self._store, self._most = load, store, cache_bytes
        self._computed: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()
        if store is None:
            _ = self._extractor

    @classmethod
    def of_model(cls, about: Mapping[str, Any], store: FeatureStore | None, device: torch.device) -> "ScreenFeatures":
        """`about`: `features` of the configuration of a trained model.

        Raises CheckpointError for a model that does not name the extractor of its training, DatasetError for a store of
        another one, and what `load_trained_extractor` raises.
        """
        missing = [key for key in ("digest", "precision") if key not in about]
        if missing:
            raise CheckpointError(
                f"`features` of the model's configuration lacks {' and '.join(missing)}, so that the features of its "
                "training are unknown; restore RUN/features.json (of an adapter) or config.json, or copy "
                f"{' and '.join(missing)} from `extractor` in manifest.json of the features it was trained on"
            )
        settings = FeatureSettings.of_model(about)
        digest, precision = about["digest"], about["precision"]
        if store is not None:
            store.check_extractor(settings, digest, precision)
        return cls(lambda: load_trained_extractor(settings, digest, precision, device), store)

    @cached_property
    def _extractor(self) -> Extractor:
        return self._load()

    @cached_property
    def lookup(self) -> FeatureLookup:
        return FeatureLookup(self._store, self._extractor.preprocess if self._store is None else None)

    def of(self, screens: Sequence[LookedUp]) -> list[np.ndarray]:
        """float16 (T, D) of each screen. Raises NonFiniteFeaturesError."""
        keys = [None if screen.pixels is None else pixel_digest(screen.pixels) for screen in screens]
        with self._lock:
            missing = {
                key: screen.pixels
                for key, screen in zip(keys, screens, strict=True)
                if key is not None and screen.pixels is not None and key not in self._computed
            }
            self._compute(missing)
            found = [self._one(key, screen) for key, screen in zip(keys, screens, strict=True)]
            while sum(features.nbytes for features in self._computed.values()) > self._most:
                self._computed.popitem(last=False)
        return found

    def _compute(self, screens: Mapping[bytes, np.ndarray]) -> None:
        rest = iter(screens.items())
        while batch := dict(islice(rest, _AT_ONCE)):
            extractor, pixels = self._extractor, list(batch.values())
            features = extractor.extract_prepared(pixels) if self._store is None else extractor.extract(pixels)
            # Copies, because a view would keep the features of the whole batch.
            self._computed |= zip(batch, (row.copy() for row in features), strict=True)

    def _one(self, key: bytes | None, screen: LookedUp) -> np.ndarray:
        if screen.features is not None:
            return screen.features
        assert key is not None  # noqa: S101 (a screen has features or pixels)
        self._computed.move_to_end(key)
        return self._computed[key]
