"""`vlm-agent inspect --screen FILE`: reads one screen from its pixels, describes it in words and draws each stage."""

import argparse

from vlm_agent.cli.parser import OK
from vlm_agent.files import atomic_write
from vlm_agent.files.console import make_console, new_table, quiet_libraries

SCREEN_OPTIONS = ("words", "widgets", "icons")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose the readers; None means the default of `Readers`."""
    parser.add_argument("--words", choices=("en", "zh"), help="screen: language of the description (default en)")
    parser.add_argument("--widgets", metavar="NAME", help="screen: detector of widgets (edges, onnx:FILE, …)")
    parser.add_argument("--icons", metavar="NAME", help="screen: reader of icons (phone_icons_tiny, clip:FOLDER, none)")


def inspect_screen(options: argparse.Namespace) -> int:
    quiet_libraries()

    from vlm_agent.screens.describe import describe
    from vlm_agent.screens.picture import read_picture
    from vlm_agent.screens.stages import draw_stages
    from vlm_agent.screens.understand import Readers, Seconds, understand

    chosen = {name: getattr(options, name) for name in ("widgets", "icons")}
    readers = Readers(**{name: value for name, value in chosen.items() if value is not None}).load()
    pixels, seconds, console = read_picture(options.screen, str(options.screen)), Seconds(), make_console()
    understood = understand(pixels, readers, seconds)
    words = describe(understood, options.words or "en")
    console.print(words or "Nothing was found on this screen.", markup=False, highlight=False, soft_wrap=True)
    table = new_table("", ("stage", "seconds"))
    for stage, value in seconds.stages.items():
        table.add_row(stage, f"{value:.2f}")
    console.print(table)
    if options.output is not None:
        with atomic_write(options.output) as temporary:
            draw_stages(pixels, understood).save(temporary, format="PNG")
        console.print(f"Drew {options.output}", markup=False, highlight=False, soft_wrap=True)
    return OK
