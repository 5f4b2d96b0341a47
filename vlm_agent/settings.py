"""Settings: the base class of everything that is read from YAML, and registries of variants that settings name.

Recipes, agent files, benchmarks, action languages and model families define their settings with these pieces, so that
unknown keys and unknown names are reported the same way everywhere. Another package names a variant as an entry point,
in its pyproject.toml:

    [project.entry-points."vlm_agent.agents"]
    centre = "my_package.centre:CentreSettings"

The metadata of packages are read at the first look-up, and a module is imported when its variant is used.
"""

import sys
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, SerializeAsAny, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from vlm_agent.errors import UserError

T = TypeVar("T")

BARE_OFF = BeforeValidator(lambda value: "off" if value is False else value)
"""For keys with the value `off`, which YAML reads as false where it is not quoted."""


def either(*keys: str) -> dict[str, set[str]]:
    """`REPLACES` for keys that exclude each other."""
    return {key: {*keys} - {key} for key in keys}


class Section(BaseModel):
    """An immutable group of settings that refuses unknown keys, infinity and NaN.

    `REPLACES` maps a key to those that it excludes: an override of the key removes them from what the file holds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    REPLACES: ClassVar[Mapping[str, Collection[str]]] = {}


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


class PluginError(UserError):
    """A variant of another package that cannot be used; the message names the package and its entry point."""


class Registry(MutableMapping[str, T], Generic[T]):
    """Variants by name: `own` ones, then those that other packages have as entry points of `group`.

    A value of `own` that is text, as in `module:OBJECT`, is imported at its first use. Those of other packages must be
    subclasses of `subclass_of`, or instances of `instance_of`, and a `name` that they have must be that of the entry
    point.

    Every look-up raises PluginError if two packages have a variant of one name, or one has that of an own variant;
    `[name]` also if the variant of another package cannot be imported or has another type. Iteration imports nothing.
    """

    def __init__(
        self,
        group: str,
        own: Mapping[str, T | str],
        *,
        subclass_of: type | None = None,
        instance_of: type | None = None,
    ) -> None:
        self.group = group
        self._own = dict(own)
        self._subclass_of, self._instance_of = subclass_of, instance_of

    def __getitem__(self, name: str) -> T:
        plugins = self.plugins()
        found: Any = self._own[name] if name in self._own else self._load(plugins[name])
        return resolve_name(found) if isinstance(found, str) else found

    def __setitem__(self, name: str, variant: T) -> None:
        self._own[name] = variant

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self.plugins()

    def __iter__(self) -> Iterator[str]:
        yield from [*self._own, *self.plugins()]

    def __len__(self) -> int:
        return len(self._own) + len(self.plugins())

    def plugins(self) -> Mapping[str, EntryPoint]:
        """The entry points of other packages by name."""
        found: dict[str, EntryPoint] = {}
        for point in _entry_points(tuple(sys.path), self.group):
            if point.name in self._own:
                raise PluginError(f"{_in_words(point)} has the name of a variant of vlm-agent; {_remedy(point)}")
            if point.name in found:
                other = _in_words(found[point.name])
                raise PluginError(f"{_in_words(point)} has the name of {other}; uninstall one of them")
            found[point.name] = point
        return found

    def _load(self, point: EntryPoint) -> Any:
        try:
            found = point.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise PluginError(f"{_in_words(point)} cannot be loaded ({reason}); {_remedy(point)}") from error
        if (expected := self._misfit(found)) is not None:
            raise PluginError(f"{_in_words(point)} is not {expected}; {_remedy(point)}")
        if not isinstance(found, type) and getattr(found, "name", point.name) != point.name:
            raise PluginError(f"{_in_words(point)} has the name {found.name!r} itself; {_remedy(point)}")
        return found

    def _misfit(self, found: object) -> str | None:
        """The type that `found` should have; None if it has it."""
        if self._subclass_of is not None and not (isinstance(found, type) and self._subclass_of in found.__mro__):
            return f"a subclass of {self._subclass_of.__name__}"
        if self._instance_of is not None and self._instance_of not in type(found).__mro__:
            return f"an instance of {self._instance_of.__name__}"
        return None


@lru_cache(maxsize=64)
def _entry_points(path: tuple[str, ...], group: str) -> tuple[EntryPoint, ...]:
    """The entry points of the packages on `path`, which is `sys.path`. Reading all metadata takes tens of milliseconds,
    so it is done once."""
    return tuple(sorted(entry_points(group=group), key=lambda point: point.name))


def _package(point: EntryPoint) -> str:
    return "another package" if point.dist is None else f"{point.dist.metadata['Name']} {point.dist.version}"


def _in_words(point: EntryPoint) -> str:
    return f"{point.name} = {point.value} (entry point {point.group} of {_package(point)})"


def _remedy(point: EntryPoint) -> str:
    return f"mend or uninstall {_package(point).partition(' ')[0] if point.dist else 'that package'}"
