"""The console command `vlm-agent`: one subcommand a stage, from data to a scored agent.

    vlm-agent simulate --output DIR --episodes N       demonstrations on a simulated phone, in AITW's format
    vlm-agent convert --input PATHS --output DIR       AITW files become shards
    vlm-agent inspect DIR                              what is in shards; draws an episode
    vlm-agent train --config recipes/X.yaml            a recipe becomes a run folder
    vlm-agent evaluate --checkpoint RUN --shards DIR   a run becomes numbers and pictures
    vlm-agent demo                                     all of these, small

Exit status: 0 when all went well; 1 when something asked for cannot be done, with one message that says what; 2 when a
conversion quarantined records; 130 after Ctrl-C. Every command imports what it needs when it runs, so that `--help`
does not wait for PyTorch.
"""

import argparse
import difflib
import itertools
import logging
import random
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import vlm_agent

OK, FAILED, QUARANTINED, INTERRUPTED = 0, 1, 2, 130

_SAID_WITHOUT_GPU = {
    "bitsandbytes.backends.cpu.ops": "Failed to load CPU gemm_4bit_forward",
    "DeepSpeed": "Setting accelerator to CPU",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; leaves by SystemExit where the arguments are wrong."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options, rest = _parser().parse_known_args(arguments)
    if rest and not options.parser.takes_keys:
        options.parser.error(f"{rest[0]!r} belongs to no option")
    options.rest = rest
    try:
        return options.run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (OSError, ValueError) as error:
        if not _is_expected(error):
            raise
        print(f"vlm-agent {options.command}: {_message(error)}", file=sys.stderr)
        return FAILED


def _is_expected(error: Exception) -> bool:
    """Whether the message is for the person at the terminal: about a file, or raised by a check of this package.

    A ValueError from inside a library is a bug here, and keeps its traceback.
    """
    raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    return isinstance(error, OSError) or raised_in.is_relative_to(Path(vlm_agent.__file__).parent)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


class _Parser(argparse.ArgumentParser):
    """Refuses with status 1, because 2 means quarantined records; takes no abbreviation, because `--split` of one
    command is not `--splits` of another; names the option nearest to an unknown one.

    With `takes_keys` an unknown option is not refused: it may be a key of a recipe.
    """

    def __init__(self, takes_keys: bool = False, **options):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self.takes_keys = takes_keys

    def parse_known_args(self, args=None, namespace=None):
        # Before argparse, which would say that --input is missing where somebody wrote --imput.
        leading = args if self._subparsers is None else itertools.takewhile(lambda text: text.startswith("-"), args)
        for argument in leading:
            if argument.startswith("--") and not self.takes_keys:
                self._check_known(argument)
        return super().parse_known_args(args, namespace)

    def _check_known(self, argument: str) -> None:
        name = argument.partition("=")[0]
        known = [option for option in self._option_string_actions if option.startswith("--")]
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)
            self.error(f"unknown option {name}; did you mean {nearest[0]}?")

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(FAILED, f"{self.prog}: {message}\n")


def _parser() -> _Parser:
    parser = _Parser(
        prog="vlm-agent",
        description=f"{vlm_agent.__doc__}\n\nvlm-agent COMMAND --help tells a command's options.",
    )
    parser.add_argument("--version", action="version", version=vlm_agent.__version__)
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for add in (_add_simulate, _add_convert, _add_inspect, _add_train, _add_evaluate, _add_demo):
        add(commands)
    return parser


def _command(commands, run, summary: str, description: str = "", takes_keys: bool = False) -> _Parser:
    """A subcommand named as its function."""
    text = f"{summary[0].upper()}{summary[1:]}.\n\n{description}".strip()
    parser = commands.add_parser(run.__name__.lstrip("_"), help=summary, description=text, takes_keys=takes_keys)
    parser.set_defaults(run=run, parser=parser)
    return parser


def _add_simulate(commands) -> None:
    parser = _command(
        commands,
        _simulate,
        "write demonstrations on a simulated phone, in AITW's format",
        "Writes gzip TFRecords, splits.json (train, validation, test) for `convert --splits`, and groups.json (goals\n"
        "that need memory) for `evaluate --groups`.",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="a folder that does not exist yet")
    parser.add_argument("--episodes", type=_count, required=True, metavar="N", help="how many demonstrations")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="same seed, same bytes (default 0)")
    parser.add_argument(
        "--size", type=_size, nargs="+", metavar="HxW", help="screen sizes in pixels to choose from (default 448x208)"
    )
    parser.add_argument("--workers", type=_count, metavar="N", help="processes (default: one a core)")


def _simulate(options) -> int:
    from vlm_agent.datasets.simulated_phone import SIZE, simulate

    simulate(
        options.output,
        options.episodes,
        options.seed,
        sizes=(SIZE,) if options.size is None else options.size,
        workers=options.workers,
        console=_console(),
    )
    return OK


def _add_convert(commands) -> None:
    parser = _command(
        commands,
        _convert,
        "turn a source's files into shards",
        "Writes Parquet shards, a manifest, and quarantine.jsonl with every record that could not be used.\n"
        "Exit status 2 says that there were such records; the good ones are written all the same.",
    )
    parser.add_argument("--source", default="aitw", metavar="NAME", help="what the files are (default aitw)")
    parser.add_argument(
        "--input", type=Path, nargs="+", required=True, metavar="PATH", help="files, or folders to search for them"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="an empty folder, or a new one")
    parser.add_argument(
        "--splits",
        type=Path,
        nargs="+",
        default=(),
        metavar="FILE",
        help="JSON: label → episode ids (without: everything is train)",
    )


def _convert(options) -> int:
    from vlm_agent.datasets.convert import convert

    summary = convert(options.source, options.input, options.output, options.splits, _console())
    return QUARANTINED if summary.quarantined else OK


def _add_inspect(commands) -> None:
    parser = _command(commands, _inspect, "show what is in shards, and draw an episode")
    parser.add_argument("shards", type=Path, metavar="DIR", help="a converted folder")
    parser.add_argument("--split", metavar="NAME", help="only this split: train, validation or test")
    parser.add_argument("--subset", metavar="NAME", help="only this subset")
    parser.add_argument(
        "--draw", metavar="EPISODE", help="draw this episode on a contact sheet: an id, `first` or `random`"
    )
    parser.add_argument("--output", type=_png, metavar="FILE", help="where to draw it (default contact_sheet.png)")


def _inspect(options) -> int:
    from vlm_agent.datasets.shards import ShardDataset
    from vlm_agent.datasets.statistics import summarise

    if options.output is not None and options.draw is None:
        options.parser.error("--output is where an episode is drawn; say which with --draw EPISODE_ID, first or random")
    console = _console()
    dataset = ShardDataset(options.shards, split=options.split, subset=options.subset)
    summarise(dataset).print(console)
    if options.draw is not None:
        output = Path("contact_sheet.png") if options.output is None else options.output
        episode = _choose_episode(dataset, options.draw)
        _draw(episode, output)
        console.print(f"Drew episode {episode.id} ({len(episode)} steps) on {output}", highlight=False, soft_wrap=True)
    return OK


def _choose_episode(dataset, which: str):
    """An episode of a ShardDataset, by id or by `first` or `random`; ValueError where there is none."""
    if not len(dataset):
        raise ValueError(f"{dataset.directory} has no such episodes, so there is none to draw")
    if which in ("first", "random"):
        return dataset[0 if which == "first" else random.randrange(len(dataset))]  # noqa: S311
    if which not in dataset.ids:
        raise ValueError(
            f"{dataset.directory} has no episode {which} among the {len(dataset)} asked for; the first is "
            f"{dataset.ids[0]}"
        )
    return dataset[dataset.ids.index(which)]


def _draw(episode, output: Path) -> None:
    from vlm_agent.action_languages.binned import BinnedLanguage
    from vlm_agent.screens.drawing import contact_sheet

    language = BinnedLanguage()
    sheet = contact_sheet(episode, [language.render(step.action, step) for step in episode.steps])
    output.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(output)


def _add_train(commands) -> None:
    parser = _command(
        commands,
        _train,
        "train what a recipe says",
        "Any key of the recipe can be given another value: --training.steps 100 --data.mixture.google_apps=0.1\n"
        "The same command again resumes a run that was stopped.",
        takes_keys=True,
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the recipe, e.g. recipes/X.yaml")
    parser.usage = "vlm-agent train [-h] --config FILE [--KEY.SUBKEY VALUE ...]"


def _train(options) -> int:
    overrides = _overrides(options)
    _quiet_libraries()

    from vlm_agent.training.recipe import read_recipe
    from vlm_agent.training.train import train

    train(read_recipe(options.config, overrides), _console())
    return OK


def _overrides(options) -> dict[str, str]:
    """What `train` was given beyond its own options: `--key.sub value` or `--key.sub=value`."""
    overrides, rest = {}, list(options.rest)
    while rest:
        name, given, value = rest.pop(0).partition("=")
        if not re.fullmatch(r"--[A-Za-z_][\w.]*", name):
            options.parser.error(f"{name!r} is no key of a recipe; write --key.subkey value")
        if not given:
            if not rest or rest[0].startswith("--"):
                options.parser.error(f"{name} needs a value")
            value = rest.pop(0)
        overrides[name.removeprefix("--")] = value
    return overrides


def _add_evaluate(commands) -> None:
    parser = _command(
        commands,
        _evaluate,
        "score a trained agent on recorded episodes",
        "Writes predictions.parquet, metrics.json and report.html.",
    )
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="RUN", help="a finished run's folder")
    parser.add_argument("--shards", type=Path, required=True, metavar="DIR", help="a converted folder")
    parser.add_argument("--split", default="test", metavar="NAME", help="what to score on (default test)")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the results go")
    parser.add_argument("--groups", type=Path, metavar="FILE", help="JSON: name → episode ids, to score apart")
    parser.add_argument("--limit", type=_count, metavar="N", help="only N episodes, spread over the split")
    parser.add_argument("--bf16", action="store_true", help="mixed precision: faster, not bit-exact")
    parser.add_argument(
        "--no-controls", action="store_true", help="leave out the runs on grey screens and without history"
    )


def _evaluate(options) -> int:
    _quiet_libraries()

    from vlm_agent.evaluation.offline import Benchmark, evaluate, read_groups

    benchmark = Benchmark(options.shards, options.split, read_groups(options.groups), options.limit)
    controls = not options.no_controls
    evaluate(options.checkpoint, benchmark, options.output, _console(), bf16=options.bf16, controls=controls)
    return OK


def _add_demo(commands) -> None:
    parser = _command(
        commands,
        _demo,
        "simulate, convert, train and evaluate a tiny agent, from nothing",
        "Runs the commands above as anybody would type them. What an earlier demo left in the output folder is\n"
        "removed first; a folder that no demo made is left alone.",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("runs/demo"), metavar="DIR", help="where it all goes (default runs/demo)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, not what it learns")


def _demo(options) -> int:
    from vlm_agent.demo import run_demo

    return run_demo(options.output, options.quick)


def _quiet_libraries() -> None:
    """Drops what libraries say on every start where there is no GPU, which reads like a fault and is none."""
    for library, words in _SAID_WITHOUT_GPU.items():
        logging.getLogger(library).addFilter(lambda record, words=words: words not in record.getMessage())


def _console():
    from rich.console import Console

    return Console()


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def _png(text: str) -> Path:
    if not text.lower().endswith(".png"):
        raise argparse.ArgumentTypeError(f"{text!r} must end in .png")
    return Path(text)


def _size(text: str) -> tuple[int, int]:
    """`448x208` is 448 pixels high and 208 wide."""
    match = re.fullmatch(r"([1-9][0-9]*)[x×]([1-9][0-9]*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write height x width, as in 448x208")
    return int(match[1]), int(match[2])


if __name__ == "__main__":
    sys.exit(main())
