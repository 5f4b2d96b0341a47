"""`vlm-agent convert-checkpoint`: a published checkpoint becomes a folder that this package trains and runs."""

from pathlib import Path

from vlm_agent.cli.parser import OK, add_command
from vlm_agent.cli.terminal import make_console, quiet_libraries


def add(commands) -> None:
    parser = add_command(
        commands,
        "convert-checkpoint",
        run,
        "turn a published checkpoint into one that needs no remote code",
        "For Qwen-VL (2023), whose published folder holds code for an old library. Nothing in that folder is run. See\n"
        "docs/qwen_vl_2023.md. Checkpoints of models that transformers knows need no conversion.",
    )
    parser.add_argument("--input", type=Path, required=True, metavar="FOLDER", help="the published folder")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="a folder that does not exist yet")


def run(options) -> int:
    quiet_libraries()

    from vlm_agent.models.qwen_vl_2023.convert import convert_checkpoint

    console = make_console()

    def say(file: str) -> None:
        console.print(f"Wrote {file}", highlight=False, markup=False, soft_wrap=True)

    convert_checkpoint(options.input, options.output, say)
    console.print(
        f"Converted {options.input} to {options.output}; name it in a recipe as the model's checkpoint",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return OK
