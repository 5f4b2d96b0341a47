"""`vlm-agent view`: pages on this machine that show an output folder and ask an agent about one screen."""

import argparse
from pathlib import Path

from vlm_agent.cli.parser import OK, Commands, add_command, port
from vlm_agent.files.console import make_console

_DESCRIPTION = """\
Serves the reports, traces and training runs in OUT and the folders inside it, to browsers on this machine only. The
page Ask takes a screenshot and a goal and shows the agent's answer, thought, plan and action; the first question loads
the agent. Ctrl-C ends it with status 130. On a cluster, forward the port: ssh -L P:127.0.0.1:P HOST.

  vlm-agent view runs/demo
  vlm-agent view OUT --agent eval/agents/planner_d_pot.yaml --port 8080"""


def add(commands: Commands) -> None:
    parser = add_command(commands, "view", run, "show an output folder and ask an agent, in a browser", _DESCRIPTION)
    parser.add_argument("output", type=Path, metavar="OUT", help="an output folder, or a folder of several")
    parser.add_argument(
        "--agent",
        metavar="WHICH",
        help="a run folder, agent file or embedded base to ask (default: the first finished run in OUT)",
    )
    parser.add_argument("--port", type=port, default=0, metavar="P", help="port of the pages (default: any free one)")


def run(options: argparse.Namespace) -> int:
    from vlm_agent.evaluation.viewing import view

    view(options.output, options.agent, options.port, make_console())
    return OK
