"""Options of `vlm-agent score` for predictions of another program (see `vlm_agent/evaluation/foreign/`)."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlm_agent.cli.parser import count, filled, refuse, shipped_file
from vlm_agent.errors import DatasetError, UserError

if TYPE_CHECKING:
    from vlm_agent.action_languages import ActionLanguage
    from vlm_agent.evaluation.benchmark import Benchmark
    from vlm_agent.evaluation.foreign import ForeignPredictions

_NAMES = ("benchmark", "split", "limit", "action_language", "missing_as_wrong", "ignore_surplus")


def add_foreign_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("predictions of another program")
    group.add_argument(
        "--benchmark", type=shipped_file, metavar="FILE", help="the benchmark that they answer: one of eval/*.yaml"
    )
    group.add_argument("--split", metavar="NAME", help="the split that they answer (default test)")
    group.add_argument("--limit", type=count, metavar="N", help="at most N episodes, as in evaluate")
    group.add_argument(
        "--action-language",
        nargs="+",
        metavar="NAME",
        help="the language of the column text, and its settings: binned bins=50 (default binned)",
    )
    group.add_argument("--missing-as-wrong", action="store_true", help="accept steps without a row; they are wrong")
    group.add_argument("--ignore-surplus", action="store_true", help="accept rows of steps that the split lacks")


def check_foreign_options(options: argparse.Namespace) -> None:
    """Exits if one of the options has no effect, by the names of the files alone."""
    if not any(path.suffix for path in (options.predictions, options.against) if path is not None):
        _refuse(options)


def _refuse(options: argparse.Namespace) -> None:
    refuse(options, _NAMES, "is for predictions of another program (.csv, .jsonl or .parquet)")
    if options.report is None:
        refuse(options, ["shards"], "is for the page: add --report FILE")


@dataclass(frozen=True)
class ForeignOptions:
    """`benchmark`: the recorded steps. `language`: of the column text."""

    benchmark: "Benchmark"
    language: "ActionLanguage"
    options: argparse.Namespace

    def join(self, path: Path, rows: Path) -> tuple["ForeignPredictions", dict[str, Any]]:
        """Writes the joined predictions to `rows`. Returns what was found, and what scores record of the episodes."""
        from vlm_agent.evaluation.about import about_episodes
        from vlm_agent.evaluation.foreign import join
        from vlm_agent.evaluation.offline.run import episodes_of

        dataset, chosen = episodes_of(self.benchmark)
        found = join(
            path,
            dataset,
            chosen,
            rows,
            self.language,
            missing_as_wrong=self.options.missing_as_wrong,
            ignore_surplus=self.options.ignore_surplus,
        )
        failed = found.failed_steps()
        return found, about_episodes(self.benchmark, dataset, chosen) | ({"failed_steps": failed} if failed else {})


def foreign_options(options: argparse.Namespace) -> ForeignOptions | None:
    """None if no predictions are of another program. Exits if an option then has no effect.

    Raises DatasetError if the shards are missing, and UserError for an action language that does not exist.
    """
    from vlm_agent.evaluation.foreign import is_foreign

    paths = (path for path in (options.predictions, options.against) if path is not None and not path.is_dir())
    first = next((path for path in paths if is_foreign(path)), None)
    if first is None:
        _refuse(options)
        return None
    if options.shards is None and options.benchmark is None:
        raise DatasetError(
            f"{first} holds predictions of another program: name the converted folder with the recorded steps, and its "
            f"split, as in `vlm-agent score {first} --shards SHARDS --split test`"
        )
    from vlm_agent.evaluation.benchmark import read_benchmark

    benchmark = read_benchmark(options.benchmark, filled(options, ("shards", "split", "groups", "limit")))
    return ForeignOptions(benchmark, _language(options.action_language), options)


def _language(words: Sequence[str] | None) -> "ActionLanguage":
    """The language of `NAME KEY=VALUE …`; None: the default one."""
    from vlm_agent.action_languages import LANGUAGES, default_language
    from vlm_agent.recipe.yaml_file import validated

    if words is None:
        return default_language()
    name, *settings = words
    if name not in LANGUAGES:
        raise UserError(f"--action-language: {name!r} is unknown; choose one of {', '.join(sorted(LANGUAGES))}")
    content = {"name": name} | dict(_setting(text) for text in settings)
    return validated(LANGUAGES[name], content, "--action-language", UserError).build()


def _setting(text: str) -> tuple[str, Any]:
    import yaml

    from vlm_agent.recipe.yaml_file import read_value

    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--action-language: {text!r} is no setting; write KEY=VALUE")
    try:
        return key, read_value(value)
    except yaml.YAMLError:
        raise UserError(f"--action-language: the value of {text!r} is not valid YAML") from None
