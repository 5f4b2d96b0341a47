"""Settings: the base class of everything that is read from YAML, and fields whose class a registry chooses.

Recipes, agent files, benchmarks, action languages and model families define their settings with these two pieces, so
that unknown keys and unknown names are reported the same way everywhere.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    SerializeAsAny,
    ValidationError,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

BARE_OFF = BeforeValidator(lambda value: "off" if value is False else value)
"""For keys with the value `off`, which YAML reads as false where it is not quoted."""


def either(*keys: str) -> dict[str, set[str]]:
    """`REPLACES` for keys that exclude each other."""
    return {key: {*keys} - {key} for key in keys}


class Section(BaseModel):
    """An immutable group of settings that refuses unknown keys.

    `REPLACES` maps a key to those that it excludes: an override of the key removes them from what the file holds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

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
