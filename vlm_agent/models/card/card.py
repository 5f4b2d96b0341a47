"""Writes the card of a finished run or a merged checkpoint, and puts scores into it.

`update_card` keeps the rest of the card, so that what a person has added to it (a licence, a description) stays.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from vlm_agent.datasets.shards.dataset import title_of
from vlm_agent.errors import CheckpointError
from vlm_agent.files import atomic_write
from vlm_agent.models.card.usage import HEADING, code, how_to_use, is_adapter, model_type, plain, portable, table
from vlm_agent.models.hub import cached_path, is_hub_name
from vlm_agent.models.pretrained import reason_of
from vlm_agent.models.run_layout import CARD, EMBEDDED, MODEL_FOLDER, base_folder, trained
from vlm_agent.models.weights.origin import read_sources
from vlm_agent.recipe.run import Recipe, read_recipe


@dataclass(frozen=True)
class Share:
    """A percentage of one run of an evaluation, with its 95 % interval; None where it is undefined."""

    name: str
    value: float | None
    interval: Sequence[float] | None

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        if self.interval is None or None in self.interval:
            return f"{self.value:.1f}"
        return f"{self.value:.1f} ({self.interval[0]:.1f} – {self.interval[1]:.1f})"


@dataclass(frozen=True)
class Scores:
    """One evaluation. `rows`: shares of each run, the agent's first; the runs have the same columns.

    `about`: the split and how much of it; `revision`: the sha256 of the manifest of the shards, None for tasks on
    simulated phones; `command`: the words that evaluate the model again; `notes`: what the files in it hold.
    """

    data: str
    split: str
    about: str
    revision: str | None
    rows: Sequence[tuple[str, Sequence[Share]]]
    command: Sequence[str]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        columns = [f"{share.name}, %" for share in self.rows[0][1]]
        rows = [(name, *shares) for name, shares in self.rows]
        digest = "" if self.revision is None else f"; sha256 of the manifest `{self.revision}`"
        return "\n\n".join(
            [
                f"### {plain(portable(self.data))}: {plain(self.about)}",
                f"Percentages with 95 % intervals{digest}.",
                table(["", *columns], rows),
                code(shlex.join(portable(list(self.command)))),
                *(plain(note) for note in self.notes),
            ]
        )

    def results(self) -> list[EvalResult]:
        """The results of the model itself, without controls and baselines."""
        data = " ".join(str(portable(self.data)).split())
        return [
            EvalResult(
                task_type="image-text-to-text",
                task_name="operating a phone",
                dataset_type=re.sub(r"[^A-Za-z0-9._-]+", "-", data),
                dataset_name=data,
                dataset_split=self.split,
                dataset_revision=self.revision,
                metric_type="accuracy",
                metric_name=share.name,
                metric_value=round(share.value, 2),
                metric_args=None if share.interval is None else {"interval_95": [round(x, 2) for x in share.interval]},
            )
            for share in self.rows[0][1]
            if share.value is not None
        ]


TAGS = ["vlm-agent", "gui-agent", "android"]
_SCORES = "## Scores"
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_LICENCE_KEYS = ("license", "license_name", "license_link")

_LIMITS = """\
## Limitations

The official score is the rule of the data set's authors, which also accepts taps beside an element; the strict score
requires the same element, text and direction. The controls (grey screens, no history) and baselines show how much of a
score needs the screen or the history. A score holds for the episodes of its split alone. Answers of the model are
actions on a phone: let a person or a guard (`vlm-agent act`) permit those that buy, send or delete."""


def write_card(
    folder: Path,
    recipe: Recipe,
    sources: Mapping[str, Mapping[str, str]],
    record: Mapping[str, Any],
    name: str,
    merged: Mapping[str, str] | None = None,
) -> None:
    """Writes the card of the model in `folder`, without scores. It replaces the one that peft writes for an adapter.

    `sources`: the content of sources.json; `record`: that of run.json, empty for a run that is not finished. `merged`:
    facts of the merge, for a merged checkpoint.
    """
    bases = hub_names(sources, recipe)
    data = ModelCardData(
        base_model=[*bases.values()] or None,
        library_name=_library(folder, recipe, bases),
        pipeline_tag=None if recipe.model.vlm is None else "image-text-to-text",
        model_name=" ".join(name.split()),
        tags=TAGS,
        **licence_of_bases(sources),
    )
    measure = ["vlm-agent", "evaluate", "--checkpoint", name, "--shards", "SHARDS", "--output", "OUT"]
    commands = f"{shlex.join(measure)}\n{shlex.join(['vlm-agent', 'card', name, '--scores', 'OUT'])}"
    parts = [
        f"# {plain(name)}",
        "A model that operates phones, trained with vlm-agent.",
        table(["", ""], _facts(recipe, sources, record, bases) + list((merged or {}).items())),
        how_to_use(folder, recipe, name, bases),
        f"{_SCORES}\n\nNone yet. To measure them and put them here:\n\n{code(commands)}",
        "## Training",
        code(shlex.join(_command(record))),
        "The recipe with every key; paths are shortened to their last name:",
        code(yaml.safe_dump(portable(recipe.model_dump(mode="json")), sort_keys=False, allow_unicode=True)),
        _LIMITS,
    ]
    _write(folder, f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(parts).rstrip() + "\n")


def update_card(
    folder: Path, scores: Sequence[Scores] = (), licence: str | None = None, published: Mapping[str, str] | None = None
) -> None:
    """Replaces what is given in the card in `folder`: its scores, the licence in its metadata, and the names of the
    bases, `published`: recipe key → name on the hub.

    Raises CheckpointError where the folder has no card, or one whose metadata cannot be read, and what `with_published`
    raises.
    """
    text, data = _read(folder)
    if published:
        recipe = with_published(folder, published)
        bases = hub_names(read_sources(folder), recipe)
        data.base_model, data.library_name = [*bases.values()] or None, _library(folder, recipe, bases)
        text = _with_section(text, HEADING, how_to_use(folder, recipe, folder.absolute().name, bases))
    if scores:
        data.eval_results = [result for one in scores for result in one.results()]
        text = _with_section(text, _SCORES, "\n\n".join([_SCORES, *(one.markdown() for one in scores)]))
    if licence is not None:
        data.license, data.license_name, data.license_link = licence, None, None
    _write(folder, f"---\n{data.to_yaml()}\n---\n{text.rstrip()}\n")


def with_published(folder: Path, published: Mapping[str, str]) -> Recipe:
    """The recipe of the run in `folder` with these `published_as`, by recipe key.

    Raises CheckpointError for a key without a checkpoint, and for a text that is no name on the hub.
    """
    recipe = read_recipe(trained(folder).recipe)
    for key, name in published.items():
        if key not in recipe.model.sources or recipe.model.sources[key].checkpoint is None:
            raise CheckpointError(f"model.{key}.published_as: {folder} was not trained from a model.{key}.checkpoint")
        if not is_hub_name(name):
            raise CheckpointError(f"model.{key}.published_as: {name!r} is no name on the hub, OWNER/NAME")
    return recipe.model_copy(update={"model": recipe.model.with_published(published)})


_UNREADABLE = (ValueError, TypeError, AttributeError, KeyError, RecursionError, yaml.YAMLError)
"""What the hub's library raises for metadata of another form."""


def _read(folder: Path) -> tuple[str, ModelCardData]:
    """The text of the card after its metadata, and these."""
    path = folder / CARD
    if not path.is_file():
        raise CheckpointError(f"{folder} has no {CARD}: a finished run or merged checkpoint of this version has one")
    try:
        card = ModelCard(path.read_text(encoding="utf-8"))
        data = cast("ModelCardData", card.data)
        data.model_name = data.model_name or folder.absolute().name
    except _UNREADABLE as error:
        raise CheckpointError(
            f"{path}: its metadata cannot be read ({reason_of(error)}); correct the card, or move it away"
        ) from None
    return card.text, data


def _with_section(text: str, heading: str, section: str) -> str:
    """The text with the section under `heading` replaced, or added at the end. A heading in a block of code is none."""
    pattern = re.compile(rf"^{heading}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    changed, found = pattern.subn(lambda _: f"{section}\n\n", text, count=1)
    return (changed if found else f"{text.rstrip()}\n\n{section}").rstrip()


def _write(folder: Path, text: str) -> None:
    for place in (folder, folder / MODEL_FOLDER):
        with atomic_write(place / CARD) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _facts(
    recipe: Recipe, sources: Mapping, record: Mapping[str, Any], bases: Mapping[str, str]
) -> list[tuple[str, object]]:
    figures, training = record.get("figures", {}), recipe.training
    named = ", ".join(_in_words(key, source, bases) for key, source in sources.items())
    rows: list[tuple[str, object]] = [("base", named or "random weights")]
    parameters = figures.get("parameters")
    if parameters is not None:
        rows.append(("parameters", f"{parameters['trained']:,} trained, {parameters['frozen']:,} frozen"))
    rows += _data_facts(recipe, record)
    rows.append(("action language", recipe.action_language.model_dump()["name"]))
    steps = figures.get("steps", training.steps)
    rate = f"{training.optimizer.name}, learning rate {training.optimizer.learning_rate:g}"
    rows.append(("training", f"{'' if steps is None else f'{steps:,} steps, '}{rate}, seed {recipe.seed}"))
    if "hardware" in figures:
        rows.append(("hardware", f"{figures['hardware']}; {figures['seconds']:,.0f} s of training"))
    if record:
        versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
        rows.append(("code", f"commit {record['commit'] or 'unknown'}; {versions}"))
    return rows


def _data_facts(recipe: Recipe, record: Mapping[str, Any]) -> list[tuple[str, object]]:
    data = recipe.data
    rows: list[tuple[str, object]] = []
    if data.shards is not None:
        title = title_of(record.get("manifest") or {})
        origin = "" if title is None else f", converted from {title}"
        rows.append(("data", f"shards {portable(data.shards)}{origin}, split {data.split}"))
        if digest := record.get("manifest_sha256"):
            rows.append(("manifest of the shards", f"sha256 {digest}"))
        mixture = ", ".join(f"{subset} {share:g}" for subset, share in data.mixture.items())
        rows.append(("mixture", mixture or "every subset"))
    else:
        rows.append(("data", "chats" if data.chats is not None else "made during training"))
    if (reads := record.get("figures", {}).get("reads")) is not None:
        rows.append(("read in training", reads))
    return rows


def _in_words(key: str, source: Mapping[str, str], bases: Mapping[str, str]) -> str:
    name = bases.get(key, portable(source["checkpoint"]))
    if source.get("commit"):
        return f"{key}: {name} at commit {source['commit']}"
    if "content" in source:
        digest = f"sha256 {EMBEDDED[name]}" if name in EMBEDDED else f"fingerprint {source['content']}"
        return f"{key}: {name}, {digest}"
    return f"{key}: {name}"


def hub_names(sources: Mapping[str, Mapping[str, str]], recipe: Recipe) -> dict[str, str]:
    """Recipe key → name on the hub, of the checkpoints that have one: `published_as`, or the name that was loaded. The
    Hub refuses a card whose `base_model` is a folder."""
    names = {key: source["checkpoint"] for key, source in sources.items() if "commit" in source}
    return {key: name for key, name in (names | recipe.model.published).items() if is_hub_name(name)}


def _library(folder: Path, recipe: Recipe, bases: Mapping[str, str]) -> str:
    """The library that loads model/, for the Hub's example code."""
    is_known = model_type(folder, recipe) in CONFIG_MAPPING_NAMES and (bases or not is_adapter(folder))
    return "vlm-agent" if not is_known else "peft" if is_adapter(folder) else "transformers"


def _command(record: Mapping[str, Any]) -> list[str]:
    """The recorded command; of a run that was started from Python, the one with its saved recipe."""
    words = list(record.get("command", ()))
    start = words.index("train") if "train" in words else None
    arguments = ["train", "--config", "recipe.yaml"] if start is None else words[start:]
    return ["vlm-agent", *portable(arguments)]


def licence_of_bases(sources: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The metadata of the licence: that of the bases, from the card beside each. Empty if a base states none, or two
    bases state different ones."""
    found = [_stated(key, source["checkpoint"], source.get("commit")) for key, source in sources.items()]
    return found[0] if found and all(one == found[0] for one in found) else {}


def checked_licence(name: str) -> str:
    """`name`, if it can be an identifier of the Hub. Raises CheckpointError for another text."""
    if not _LICENCE.fullmatch(name):
        raise CheckpointError(f"{name!r} is no identifier of a licence on the Hub, such as apache-2.0, mit or other")
    return name


def _stated(key: str, checkpoint: str, commit: str | None) -> dict[str, str]:
    """By the card of a base, in its folder or in the hub's cache. {} for a card that states none, or cannot be read: it
    is a file of others, which may hold anything."""
    folder = base_folder(checkpoint) if key == "base" else Path(checkpoint)
    card = folder / CARD if commit is None else cached_path(checkpoint, CARD, commit or None)
    try:
        if card is None or not card.is_file():
            return {}
        data = ModelCard(card.read_text(encoding="utf-8"), ignore_metadata_errors=True).data.to_dict()
    except (OSError, *_UNREADABLE):
        return {}
    words = {key: data[key] for key in _LICENCE_KEYS if isinstance(data.get(key), str) and data[key].isprintable()}
    return words if _LICENCE.fullmatch(words.get("license", "")) else {}
