"""Recorded recipe keys of an earlier version, in terms of the current one."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from vlm_agent.settings import Section


def in_current_terms(recorded: Mapping[str, Any], recipe: Section, keys: Mapping[str, Any]) -> dict[str, Any]:
    """`recorded` (dotted key → JSON value) by the keys of the current version.

    Renamed keys get their new name, removed ones are left out, and each of `keys` that the earlier version did not have
    gets its default.

    `recipe` supplies the classes of the sections. A default is the value by which the earlier version worked, since a
    new key must not change what existing recipes do.
    """
    renamed = dict(recorded)
    defaults: dict[str, Any] = {}
    _visit(recipe, "", renamed, defaults)
    return {key: defaults[key] for key in keys if key in defaults} | renamed


def _visit(section: Section, prefix: str, renamed: dict[str, Any], defaults: dict[str, Any]) -> None:
    for old, new in section.RENAMED.items():
        if prefix + old in renamed:
            renamed[prefix + new] = renamed.pop(prefix + old)
    for key, value in section.REMOVED.items():
        if prefix + key in renamed and renamed[prefix + key] == value:
            del renamed[prefix + key]
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            _visit(value, f"{prefix}{name}.", renamed, defaults)
        elif not field.is_required():
            defaults[prefix + name] = to_jsonable_python(
                field.get_default(call_default_factory=True, validated_data={})
            )
