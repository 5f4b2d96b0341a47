"""`vlm-agent demo`: every stage, small."""

from pathlib import Path

from vlm_agent.cli.parser import add_command


def add(commands) -> None:
    parser = add_command(
        commands,
        "demo",
        run,
        "simulate, convert, adapt the embedded base by LoRA and evaluate the agent, small",
        "Runs the commands above as anybody would type them. What an earlier demo left in the output folder is\n"
        "removed first; a folder that no demo made is left alone.",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("runs/demo"), metavar="DIR", help="where it all goes (default runs/demo)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, not what it learns")


def run(options) -> int:
    from vlm_agent.demo import run_demo

    return run_demo(options.output, options.quick)
