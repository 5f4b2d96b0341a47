"""`vlm-agent chats`: the prompts of an agent for recorded episodes, with the replies that a text model has to learn."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from vlm_agent.cli.agent_options import add_elements_option, chosen_readers
from vlm_agent.cli.parser import OK, Commands, add_command, count, file_name
from vlm_agent.files.console import make_console

if TYPE_CHECKING:
    from vlm_agent.cli.check import Earlier

_DESCRIPTION = """\
The agent writes the prompts of every step, and the recorded action, plan or thought is the reply. A text model that is
trained on them can be served in place of a large one:

  vlm-agent chats SHARDS --agent eval/agents/planner_d_pot.yaml --output chats/d_pot.jsonl
  vlm-agent train --config recipes/comparison/text_chats_tiny.yaml --data.chats chats

Plans come from shards of `vlm-agent simulate --thoughts` or `vlm-agent annotate --texts plan`."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands, "chats", run, "write an agent's prompts with known replies, to train on", _DESCRIPTION, verify=_verify
    )
    parser.add_argument("shards", type=Path, metavar="SHARDS", help="a converted folder")
    parser.add_argument(
        "--agent", required=True, metavar="FILE", help="an agent file of dynamic_planning or vision_tasker"
    )
    parser.add_argument("--split", default="train", metavar="NAME", help="the split to read (default train)")
    parser.add_argument("--limit", type=count, metavar="N", help="at most N episodes, spread evenly over the split")
    add_elements_option(parser)
    parser.add_argument("--output", type=file_name(".jsonl"), required=True, metavar="FILE", help="the file to write")


def _verify(options: argparse.Namespace, earlier: "Earlier") -> None:
    earlier.outputs.append(options.output.absolute().parent)  # training may read the folder


def run(options: argparse.Namespace) -> int:
    from vlm_agent.agents.chats import write_chats
    from vlm_agent.agents.loading import agent_settings
    from vlm_agent.agents.read_screens import ReadEpisodes, ScreenReader
    from vlm_agent.datasets.shards.dataset import ShardDataset

    settings = agent_settings(options.agent)
    dataset = ShardDataset(options.shards, split=options.split)
    readers = chosen_readers(options, settings)
    episodes = dataset if readers is None else ReadEpisodes(dataset, ScreenReader.of(readers))
    write_chats(options.output, settings, episodes, options.limit, make_console())
    return OK
