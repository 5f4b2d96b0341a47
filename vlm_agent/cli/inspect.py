"""`vlm-agent inspect`: statistics of shards on the terminal and as a page; an episode, a trace or a screen, drawn."""

import argparse
import random
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.parser import OK, Commands, accept_only, add_command, count, file_name, filled, refuse, shipped_file
from vlm_agent.errors import UserError
from vlm_agent.files.console import make_console, new_table, print_plain

if TYPE_CHECKING:
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.datasets.statistics.summary import Columns, TokenBudget
    from vlm_agent.episodes import Episode


SCREEN_OPTIONS = ("words", "widgets", "icons")
"""Options that choose the readers; None means the default of `Readers`."""

_OF_SHARDS = ("split", "subset", "html", "config", "budget", "draw")


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "inspect",
        run,
        "print statistics of shards, the steps of a trace, or a screen in words; draw them",
        "Of shards, only --draw reads pixels. With --config it also counts the tokens of whole trajectories under a\n"
        "recipe; a word_tokenizer is built from DIR. For the trace of an agent it prints every step; --output then\n"
        "draws a contact sheet, --animate an animation. With --screen it reads one screenshot from its pixels, prints\n"
        "it in words and the seconds of each stage; --output then draws each stage over the screen.",
        check=_check,
    )
    parser.add_argument("shards", type=Path, nargs="?", metavar="DIR", help="a converted folder, or a trace's folder")
    parser.add_argument(
        "--screen", type=Path, metavar="FILE", help="a screenshot to read (PNG, JPEG, WebP), instead of DIR"
    )
    parser.add_argument("--split", metavar="NAME", help="only this split: train, validation or test")
    parser.add_argument("--subset", metavar="NAME", help="only this subset")
    parser.add_argument(
        "--html",
        type=file_name(".html"),
        nargs="?",
        const=Path("statistics.html"),
        metavar="FILE",
        help="write a page with charts (default statistics.html)",
    )
    parser.add_argument(
        "--config", type=shipped_file, metavar="FILE", help="a recipe under which to count tokens, e.g. recipes/X.yaml"
    )
    parser.add_argument(
        "--budget",
        type=count,
        metavar="N",
        help="limit of tokens to compare with (default: the model's context length)",
    )
    parser.add_argument(
        "--draw", metavar="EPISODE", help="draw this episode on a contact sheet: an id, `first` or `random`"
    )
    parser.add_argument(
        "--output",
        type=file_name(".png"),
        metavar="FILE",
        help="file for the drawing (--draw: default contact_sheet.png)",
    )
    parser.add_argument("--animate", type=file_name(".gif"), metavar="FILE", help="trace: write it as an animated GIF")
    parser.add_argument("--words", choices=("en", "zh"), help="screen: language of the description (default en)")
    parser.add_argument("--widgets", metavar="NAME", help="screen: detector of widgets (edges, onnx:FILE, …)")
    parser.add_argument("--icons", metavar="NAME", help="screen: reader of icons (phone_icons_tiny, clip:FOLDER, none)")


def run(options: argparse.Namespace) -> int:
    if options.screen is not None:
        return _inspect_screen(options)
    from vlm_agent.datasets.sources.traces import is_trace

    if is_trace(options.shards):
        return _inspect_trace(options)

    from vlm_agent.cli.job_status import refuse_for_shards
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.datasets.statistics.summary import read_columns, summarise
    from vlm_agent.datasets.statistics.tables import print_statistics

    refuse_for_shards(options.shards)
    console = make_console()
    dataset = ShardDataset(options.shards, split=options.split, subset=options.subset)
    dataset.check_shards()
    columns = read_columns(dataset)
    statistics = summarise(columns)
    tokens = None if options.config is None else _count_tokens(dataset, columns, options)
    print_statistics(console, statistics, tokens)
    if options.html is not None:
        from vlm_agent.datasets.statistics.page import write_page

        facts = {"shards": str(options.shards), **filled(options, ("split", "subset"))}
        write_page(options.html, statistics, dataset.manifest, tokens, facts)
        print_plain(console, f"Wrote {options.html}")
    if options.draw is not None:
        from vlm_agent.action_languages import default_language
        from vlm_agent.drawing.contact_sheet import contact_sheet, save_sheet

        output = Path("contact_sheet.png") if options.output is None else options.output
        episode = _choose_episode(dataset, options.draw)
        language = default_language()
        captions = [language.encode(step.action, step.screen) for step in episode.steps]
        save_sheet(contact_sheet(episode, captions), output)
        print_plain(console, f"Drew episode {episode.id} ({len(episode)} steps) on {output}")
    return OK


def _check(options: argparse.Namespace) -> None:
    if options.screen is not None:
        if options.shards is not None:
            options.parser.error(f"choose one of --screen and {options.shards}")
        accept_only(options, ("screen", "output", *SCREEN_OPTIONS), "--screen reads one picture")
        return
    if options.shards is None:
        options.parser.error("needs DIR, a converted folder or the folder of a trace, or --screen FILE")
    refuse(options, SCREEN_OPTIONS, "is for a screen: add --screen FILE")

    from vlm_agent.datasets.sources.traces import is_trace

    if is_trace(options.shards):
        refuse(options, _OF_SHARDS, f"is for shards, but {options.shards} is a trace")
        return
    if options.draw is None:
        refuse(options, ["output"], "needs the episode to draw: add --draw EPISODE_ID, --draw first or --draw random")
    refuse(options, ["animate"], f"draws the trace of an agent, but {options.shards} is not a trace")
    if options.config is None:
        refuse(options, ["budget"], "needs a recipe to count tokens: add --config FILE")


def _count_tokens(dataset: "ShardDataset", columns: "Columns", options: argparse.Namespace) -> "TokenBudget":
    from vlm_agent.datasets.statistics.summary import TokenBudget, by_subset
    from vlm_agent.recipe.run import read_recipe
    from vlm_agent.training.data.recipe_sentences import context_length, whole_lengths
    from vlm_agent.training.data.shard_data import ShardDataModule

    recipe = read_recipe(options.config)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"shards": str(options.shards)})})
    data = ShardDataModule(recipe)
    sentences = data.sentences  # raises the error for recipes without trajectories
    limit = context_length(data.config) if options.budget is None else options.budget
    name = "context length" if options.budget is None else "budget"
    lengths = whole_lengths(dataset, sentences)
    return TokenBudget(options.config.name, limit, by_subset(columns, lengths), name)


def _choose_episode(dataset: "ShardDataset", episode_id: str) -> "Episode":
    """An episode of a ShardDataset by id, or the `first` or a `random` one. Raises UserError if it does not exist."""
    if not len(dataset):
        raise UserError(f"{dataset.directory} has no episode of this split and subset to draw")
    if episode_id in ("first", "random"):
        return dataset[0 if episode_id == "first" else random.randrange(len(dataset))]  # noqa: S311
    if episode_id not in dataset.ids:
        raise UserError(
            f"{dataset.directory} has no episode {episode_id} among its {len(dataset)} selected episodes; the first is "
            f"{dataset.ids[0]}"
        )
    return dataset[dataset.ids.index(episode_id)]


def _inspect_trace(options: argparse.Namespace) -> int:
    from rich.text import Text

    from vlm_agent.datasets.sources.traces import read_trace
    from vlm_agent.drawing.animation import animate
    from vlm_agent.drawing.contact_sheet import outcomes_in_words, save_sheet, trace_sheet

    trace, console = read_trace(options.shards), make_console()
    heading = trace.heading
    console.print(f"{heading.goal}\n{heading.agent}, on {heading.device}", markup=False, highlight=False)
    table = new_table("", ("step", "activity", "answer", "outcome", "seconds"), left=("activity", "answer", "outcome"))
    for step in trace.steps:
        seconds = f"{sum(step.seconds.values()):.2f}"
        # repr escapes control characters of the terminal, which an answer may contain.
        answer = Text(repr(step.answer))
        why = f": {step.message}" if step.message else ""
        activity, outcome = Text(repr(step.activity)[1:-1]), Text(step.outcome_words + repr(why)[1:-1])
        table.add_row(str(step.number + 1), activity, answer, outcome, seconds)
    console.print(table)
    console.print(outcomes_in_words(trace), highlight=False)
    print_plain(console, trace.ending)
    if options.output is not None:
        save_sheet(trace_sheet(trace), options.output)
        print_plain(console, f"Drew {options.output}")
    if options.animate is not None:
        animate(trace, options.animate)
        print_plain(console, f"Drew {options.animate}")
    return OK


def _inspect_screen(options: argparse.Namespace) -> int:
    from vlm_agent.drawing.contact_sheet import save_sheet
    from vlm_agent.screens.describe import describe
    from vlm_agent.screens.picture import read_picture
    from vlm_agent.screens.stages import draw_stages
    from vlm_agent.screens.understand import Readers, Seconds, understand

    readers = Readers(**filled(options, ("widgets", "icons"))).load()
    pixels, seconds, console = read_picture(options.screen, str(options.screen)), Seconds(), make_console()
    understood = understand(pixels, readers, seconds)
    words = describe(understood, options.words or "en")
    print_plain(console, words or "Nothing was found on this screen.")
    table = new_table("", ("stage", "seconds"))
    for stage, value in seconds.stages.items():
        table.add_row(stage, f"{value:.2f}")
    console.print(table)
    if options.output is not None:
        save_sheet(draw_stages(pixels, understood), options.output)
        print_plain(console, f"Drew {options.output}")
    return OK
