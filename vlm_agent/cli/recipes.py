"""`vlm-agent recipes`: the recipes, benchmarks, agent files, comparisons and DeepSpeed files of the package."""

import argparse
from pathlib import Path

from vlm_agent.cli.parser import OK, Commands, add_command, refuse
from vlm_agent.files.console import say


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "recipes",
        run,
        "list the shipped recipes, copy one",
        "Without NAME: lists every recipe, benchmark, agent file, comparison and DeepSpeed configuration. With NAME:\n"
        "prints this file, or copies it to --output for editing:\n\n"
        "  vlm-agent recipes forkme --output mine.yaml\n"
        "  vlm-agent train --config mine.yaml --dry-run\n\n"
        "`--config`, `--benchmark`, `--agent`, `--training.deepspeed` and the FILE of `compare` find these files by\n"
        "their relative path in any working directory.",
        check=_check,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="for example forkme, or recipes/forkme.yaml")
    parser.add_argument("--output", type=Path, metavar="FILE", help="a new file for the copy")


def _check(options: argparse.Namespace) -> None:
    if options.name is None:
        refuse(options, ["output"], "needs the NAME of the file to copy")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.errors import RecipeError
    from vlm_agent.recipe.yaml_file import by_name, label, shipped_files, suggestion, summary

    if options.name is None:
        files = shipped_files()
        width = max(len(label(path)) for path in files)
        for path in files:
            say(f"{label(path):{width}}  {summary(path)}")
        return OK
    source = by_name().get(options.name)
    if source is None:
        raise RecipeError(f"no shipped file has the name {options.name}; {suggestion(options.name)}")
    text = source.read_text(encoding="utf-8")
    if options.output is None:
        say(text, end="")
        return OK
    if options.output.exists():
        raise RecipeError(f"{options.output} exists; choose a new file with --output")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    say(f"Wrote {options.output}, a copy of {label(source)}")
    return OK
