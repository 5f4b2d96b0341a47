"""`vlm-agent inspect`: what is in shards, on the terminal and as a page; draws an episode."""

import random
from pathlib import Path

from vlm_agent.cli.inspect_trace import inspect_trace
from vlm_agent.cli.parser import OK, add_command, count, file_name
from vlm_agent.console import make_console, quiet_libraries
from vlm_agent.errors import UserError


def add(commands) -> None:
    parser = add_command(
        commands,
        "inspect",
        run,
        "show what is in shards or in a trace, and draw it",
        "Nothing but --draw reads a pixel. With --config it also counts the tokens that whole trajectories take under\n"
        "a recipe; a word_tokenizer is made from DIR. Of a trace, which an agent leaves on a phone, it tells every\n"
        "step; --output then draws a contact sheet, --animate a moving picture.",
    )
    parser.add_argument("shards", type=Path, metavar="DIR", help="a converted folder, or a trace's")
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
    parser.add_argument("--config", type=Path, metavar="FILE", help="a recipe under which to count tokens")
    parser.add_argument(
        "--budget", type=count, metavar="N", help="tokens that fit (default: the language model's context length)"
    )
    parser.add_argument(
        "--draw", metavar="EPISODE", help="draw this episode on a contact sheet: an id, `first` or `random`"
    )
    parser.add_argument(
        "--output", type=file_name(".png"), metavar="FILE", help="where to draw it (default contact_sheet.png)"
    )
    parser.add_argument("--animate", type=file_name(".gif"), metavar="FILE", help="of a trace: draw it moving")


def run(options) -> int:
    from vlm_agent.datasets.sources.traces import is_trace

    if is_trace(options.shards):
        _check_for_trace(options)
        return inspect_trace(options)
    _check(options)

    from vlm_agent.datasets.shards.columns import read_columns
    from vlm_agent.datasets.shards.dataset import ShardDataset
    from vlm_agent.datasets.statistics.summary import summarise
    from vlm_agent.datasets.statistics.tables import print_statistics

    console = make_console()
    dataset = ShardDataset(options.shards, split=options.split, subset=options.subset)
    columns = read_columns(dataset)
    statistics = summarise(columns)
    tokens = None if options.config is None else _count_tokens(dataset, columns, options)
    print_statistics(console, statistics, tokens)
    if options.html is not None:
        _write_page(dataset, statistics, tokens, options)
        console.print(f"Wrote {options.html}", highlight=False, markup=False, soft_wrap=True)
    if options.draw is not None:
        output = Path("contact_sheet.png") if options.output is None else options.output
        episode = _choose_episode(dataset, options.draw)
        _draw(episode, output)
        console.print(f"Drew episode {episode.id} ({len(episode)} steps) on {output}", highlight=False, soft_wrap=True)
    return OK


def _check(options) -> None:
    if options.output is not None and options.draw is None:
        options.parser.error("--output is where an episode is drawn; say which with --draw EPISODE_ID, first or random")
    if options.animate is not None:
        options.parser.error(f"--animate draws an agent's trace, and {options.shards} holds none")
    if options.budget is not None and options.config is None:
        options.parser.error("--budget is in tokens, which depend on the recipe; name one with --config")


def _check_for_trace(options) -> None:
    for name in ("split", "subset", "html", "config", "budget", "draw"):
        if getattr(options, name) is not None:
            options.parser.error(f"--{name} is for shards, and {options.shards} is one trace")


def _count_tokens(dataset, columns, options):
    quiet_libraries()

    from vlm_agent.datasets.statistics.summary import TokenBudget, by_subset
    from vlm_agent.recipe.run import read_recipe
    from vlm_agent.training.data.token_counts import columns_for, context_length, count_tokens, recipe_sentences

    recipe = read_recipe(options.config)
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"shards": str(options.shards)})})
    budget = context_length(recipe) if options.budget is None else options.budget
    sentences = recipe_sentences(recipe)
    counts = count_tokens(columns_for(dataset, sentences, columns), sentences).whole
    return TokenBudget(options.config.name, budget, by_subset(columns, counts))


def _write_page(dataset, statistics, tokens, options) -> None:
    from vlm_agent.datasets.statistics.page import write_page

    asked = {"shards": str(options.shards), "split": options.split, "subset": options.subset}
    facts = {name: value for name, value in asked.items() if value is not None}
    write_page(options.html, statistics, dataset.manifest, tokens, facts)


def _choose_episode(dataset, which: str):
    """An episode of a ShardDataset, by id or by `first` or `random`; UserError where there is none."""
    if not len(dataset):
        raise UserError(f"{dataset.directory} has no such episodes, so there is none to draw")
    if which in ("first", "random"):
        return dataset[0 if which == "first" else random.randrange(len(dataset))]  # noqa: S311
    if which not in dataset.ids:
        raise UserError(
            f"{dataset.directory} has no episode {which} among the {len(dataset)} asked for; the first is "
            f"{dataset.ids[0]}"
        )
    return dataset[dataset.ids.index(which)]


def _draw(episode, output: Path) -> None:
    from vlm_agent.action_languages import default_language
    from vlm_agent.drawing.contact_sheet import save_contact_sheet

    language = default_language()
    save_contact_sheet(episode, output, [language.encode(step.action, step.screen) for step in episode.steps])
