"""Settings: the base class of everything that is read from YAML, and fields whose class a registry chooses.

Recipes, agent files, benchmarks, action languages and model families define their settings with these two pieces, so
that unknown keys, renamed keys and unknown names are reported the same way everywhere.
"""

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    SerializeAsAny,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

_LOG = logging.getLogger(__name__)

BARE_OFF = BeforeValidator(lambda value: "off" if value is False else value)
"""For keys with the value `off`, which YAML reads as false where it is not quoted."""


def either(*keys: str) -> dict[str, set[str]]:
    """`REPLACES` for keys that exclude each other."""
    return {key: {*keys} - {key} for key in keys}


_RENAMED_FOUND: ContextVar[dict[str, str] | None] = ContextVar("renamed keys that a file uses", default=None)


@contextmanager
def naming_file(where: str) -> Iterator[None]:
    """In the block, each renamed key is reported once, at the end, with the file `where` that uses it.

    Of the ranks of a distributed run only the first one reports.
    """
    found: dict[str, str] = {}
    token = _RENAMED_FOUND.set(found)
    try:
        yield
    finally:
        _RENAMED_FOUND.reset(token)
        if os.environ.get("RANK", "0") == "0":
            for old, new in found.items():
                _warn(old, new, f"{where}: ")


def _warn(old: str, new: str, where: str = "") -> None:
    _LOG.warning("%sthe key %s is now called %s; please rename it", where, old, new)


class Section(BaseModel):
    """An immutable group of settings that refuses unknown keys.

    `RENAMED` maps an old key to the new one. An old key is accepted, and a warning names the new key. `REMOVED` maps a
    key of an earlier version to the value that its absence means now; the key is accepted with that value alone.
    `REPLACES` maps a key to those that it excludes: an override of the key removes them from what the file holds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    RENAMED: ClassVar[Mapping[str, str]] = {}
    REMOVED: ClassVar[Mapping[str, Any]] = {}
    REPLACES: ClassVar[Mapping[str, Collection[str]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _accept_renamed_keys(cls, content: Any) -> Any:
        if not isinstance(content, Mapping):
            return content
        renamed = {old: new for old, new in cls.RENAMED.items() if old in content}
        for old, new in renamed.items():
            if new in content:
                raise ValueError(f"{old} is the old name of {new}; give only {new}")
            found = _RENAMED_FOUND.get()
            if found is None:
                _warn(old, new)
            else:
                found[old] = new
        missing = object()
        return {
            renamed.get(key, key): value for key, value in content.items() if cls.REMOVED.get(key, missing) != value
        }


@dataclass(frozen=True)
class chosen_from:  # noqa: N801 (reads as a function where it is used)
    """A field of settings whose class is the one that `registry` holds under the value of `key`.

        language: Annotated[LanguageSettings, chosen_from(LANGUAGES, default="binned")]

    The registry is read at validation time, so a variant that registers itself later is accepted. `default` is the name
    when `key` is absent.
    """

    registry: Mapping[str, type[Section]]
    key: str = "name"
    default: str | None = None

    def section(self, content: Mapping[str, Any]) -> type[Section]:
        """The class for these keys and values; ValidationError, located at `key`, where the name is unknown."""
        name = content.get(self.key, self.default)
        if not isinstance(name, str) or name not in self.registry:
            message = f"{name!r} is unknown; choose one of {', '.join(sorted(self.registry))}"
            problem = PydanticCustomError("unknown_name", "{message}", {"message": message})
            raise ValidationError.from_exception_data(self.key, [{"type": problem, "loc": (self.key,), "input": name}])
        return self.registry[name]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        base = Section if source is self else source
        inner = handler.generate_schema(Annotated[base, SerializeAsAny()])
        return core_schema.no_info_before_validator_function(self._choose, inner)

    def _choose(self, content: Any) -> Any:
        return self.section(content).model_validate(dict(content)) if isinstance(content, Mapping) else content
