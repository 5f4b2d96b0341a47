"""YAML files that become settings: finding one, reading it, and explaining what is wrong in it.

The package comes with recipes, benchmarks, agent files and DeepSpeed configurations. In a checkout they lie at the top
of the repository, where people edit them. A wheel carries copies of the same folders inside the package (`setup.py`),
so an installed `vlm-agent` has them wherever it runs.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from vlm_agent.errors import UserError
from vlm_agent.files.installation import ROOT
from vlm_agent.settings import Section, chosen_from

SectionT = TypeVar("SectionT", bound=Section)

FOLDERS = {
    "recipes": "*.yaml",
    "recipes/comparison": "*.yaml",
    "eval": "*.yaml",
    "eval/agents": "*.yaml",
    "eval/comparisons": "*.yaml",
    "deepspeed_configs": "*.json",
}
"""The folders, and the names of the files in them that count."""


class _Loader(yaml.SafeLoader):
    """YAML 1.2 where PyYAML follows 1.1: 1e-4 is a number, not a string, and equal keys are an error."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        known = set()
        for key, _ in node.value:
            if (name := (key.tag, str(key.value))) in known:
                raise yaml.composer.ComposerError(None, None, f"the key {key.value} occurs twice", key.start_mark)
            known.add(name)
        return node


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_value(text: str) -> Any:
    """The value that a YAML text holds. Raises yaml.YAMLError."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except (ValueError, LookupError) as problem:  # a date such as 2026-13-01
        raise yaml.YAMLError(str(problem)) from None


def read_mapping(path: Path, error: type[UserError]) -> dict[str, Any]:
    """Keys and values of a YAML file. Raises `error`, naming the file, if there are none."""
    try:
        content = read_value(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror}{_hint(path, problem)}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as problem:
        raise error(f"{path} is not valid YAML: {_in_one_line(problem)}") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise error(f"{path} must hold keys and values at its top level")
    return content


def filled(value: Any, words: Mapping[str, Any]) -> Any:
    """The value with the `words` in the strings of its lists and mappings."""
    if isinstance(value, dict):
        return {name: filled(one, words) for name, one in value.items()}
    if isinstance(value, list):
        return [filled(one, words) for one in value]
    if isinstance(value, str):
        for name, word in words.items():
            value = value.replace(name, str(word))
    return value


def _hint(path: Path, problem: OSError) -> str:
    """For a file that does not exist and is named as shipped ones are: which one may be meant."""
    is_missing = isinstance(problem, FileNotFoundError)
    return f"; {suggestion(str(path))}" if is_missing and str(path.parent) in (".", *FOLDERS) else ""


def set_keys(
    section: type[Section], content: dict[str, Any], values: Mapping[str, Any], error: type[UserError]
) -> None:
    """Sets dotted keys of `content`, from which settings of class `section` are read.

    A key that is set removes those that it excludes (`Section.REPLACES`), except others of `values`. Raises `error`
    naming the key.
    """
    kept = {key for key, value in values.items() if value is not None}
    for key, value in values.items():
        *sections, last = key.split(".")
        place, kind, name = content, section, ""
        for part in sections:
            if place.get(part) is None:
                _remove_excluded(kind, place, part, name, kept)
                place[part] = {}  # also for a null, which a saved recipe has for a section that is off
            place = place[part]
            if not isinstance(place, dict):
                raise error(f"--{key}: {part} is a value, not a section")
            field, name = kind.model_fields.get(part), f"{name}{part}."
            kind = next(iter([] if field is None else _sections(field)), Section)  # without settings, excludes nothing
        if value is not None:
            _remove_excluded(kind, place, last, name, kept)
        place[last] = value


def override_values(overrides: Mapping[str, str], error: type[UserError], prefix: str = "") -> dict[str, Any]:
    """The values of YAML texts, without comments, by key. `prefix`: of the keys on the command line. Raises `error`
    naming the key of a text that is not YAML."""
    values = {}
    for key, text in overrides.items():
        try:
            value = read_value(text)
            values[key] = text if isinstance(value, str) and text.startswith(f"{value} #") else value  # part of a path
        except yaml.YAMLError:
            raise error(f"--{prefix}{key}: {text!r} is not valid YAML") from None
    return values


def _remove_excluded(
    section: type[Section], content: dict[str, Any], key: str, prefix: str, kept: Collection[str]
) -> None:
    """`kept`: dotted keys, which stay; `prefix`: that of `content`, ending in a dot."""
    for other in section.REPLACES.get(key, ()):
        name = f"{prefix}{other}"
        if name not in kept and not any(one.startswith(f"{name}.") for one in kept):
            content.pop(other, None)


def _in_one_line(problem: Exception) -> str:
    """PyYAML's messages have several lines, with a part of the file."""
    if isinstance(problem, yaml.MarkedYAMLError) and problem.problem and problem.problem_mark:
        return f"line {problem.problem_mark.line + 1}, column {problem.problem_mark.column + 1}: {problem.problem}"
    return " ".join(str(problem).split())


def validated(section: type[SectionT], content: Mapping[str, Any], where: str, error: type[UserError]) -> SectionT:
    """`content` as settings. Raises `error`, one line for each key that is unknown, missing or of the wrong type."""
    try:
        return section(**content)
    except ValidationError as problems:
        lines = [f"{where}: {_explain(problem, section, content)}" for problem in problems.errors()]
        raise error("\n".join(lines)) from None


def _explain(problem: Any, section: type[Section], content: Mapping[str, Any]) -> str:
    location = tuple(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        *sections, key = location
        nearest = difflib.get_close_matches(key, _keys(section, sections, content), n=1, cutoff=0)
        return f"unknown key {'.'.join(location)}; did you mean {'.'.join([*sections, *nearest])}?"
    message = problem["msg"].removeprefix("Value error, ")
    return ": ".join([".".join(location), message] if location else [message])


def _keys(section: type[Section], sections: Sequence[str], content: Any) -> list[str]:
    """The keys of the section at `sections` below `section`, which `content` may choose by name."""
    parts = iter(sections)
    for part in parts:
        field, content = section.model_fields[part], content[part]
        if get_origin(field.annotation) is dict:  # sections by a name of the user's
            content = content[next(parts)]
        elif get_origin(field.annotation) in (list, tuple):
            content = content[int(next(parts))]
        choice = _choice(field)
        section = _sections(field)[0] if choice is None else choice.section(content)
    return list(section.model_fields)


def keys_of(section: type[Section], prefix: str = "") -> Iterator[str]:
    """Every key of settings, with dots. Of settings that a name chooses, the key of the name with its values."""
    for name, field in section.model_fields.items():
        choice, nested = _choice(field), _sections(field)
        if choice is not None:
            yield f"{prefix}{name}.{choice.key} ({' | '.join(sorted(choice.registry))})"
        for one in nested if choice is None else ():
            named = "NAME." if get_origin(field.annotation) is dict else ""
            yield from keys_of(one, f"{prefix}{name}.{named}")
        if choice is None and not nested:
            yield f"{prefix}{name}"


def _choice(field: FieldInfo) -> chosen_from | None:
    return next((each for each in field.metadata if isinstance(each, chosen_from)), None)


def _sections(field: FieldInfo) -> list[type[Section]]:
    """The classes of settings among the types of a field."""
    options = getattr(field.annotation, "__args__", (field.annotation,))
    return [option for option in options if isinstance(option, type) and issubclass(option, Section)]


# Shipped files.


def shipped_files() -> list[Path]:
    """All of them, folder by folder, by name."""
    return [path for folder, pattern in FOLDERS.items() for path in sorted((ROOT / folder).glob(pattern))]


def find_shipped(path: Path) -> Path:
    """`path` if it exists, else the shipped file of this relative path, else `path`.

    So `recipes/forkme.yaml` works in any working directory, and a file of the user's with that name comes first.
    """
    shipped = ROOT / path
    return shipped if not path.exists() and shipped in shipped_files() else path


def by_name() -> dict[str, Path]:
    """The shipped files by their relative path, and by their name without folder and ending."""
    files = shipped_files()
    return {path.stem: path for path in files} | {label(path): path for path in files}


def suggestion(name: str) -> str:
    """The end of an error about a file that does not exist: the shipped file with a name like it, and where all are."""
    files = by_name()
    nearest = [name] if name in files else difflib.get_close_matches(name, files, n=1)
    meant = "".join(f"did you mean {label(files[one])}? " for one in nearest)
    return f"{meant}`vlm-agent recipes` lists the shipped files"


def label(path: Path) -> str:
    """A shipped file's relative path, as a command takes it."""
    return path.relative_to(ROOT).as_posix()


def summary(path: Path) -> str:
    """One line about a shipped file: the first of its header, or for JSON what DeepSpeed does with it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".json":
        return text.partition("\n")[0].removeprefix("#").strip()
    zero = json.loads(text)["zero_optimization"]
    offload = ", weights and optimizer state in CPU memory" if "offload_param" in zero else ""
    ranks = "CPU ranks" if path.stem.startswith("cpu_") else "GPUs"
    return f"DeepSpeed ZeRO stage {zero['stage']} on {ranks}{offload}."
