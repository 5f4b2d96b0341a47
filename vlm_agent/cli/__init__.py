"""The console command `vlm-agent`: one subcommand per stage, from data to a scored agent.

`vlm-agent --help` lists them by group.

Exit status: 0 on success; 1 on an error, with one message that explains it; 2 for wrong arguments; 3 when a conversion
quarantined records; 75 when a signal stopped training (run the same command again to resume); 130 after Ctrl-C. Every
command imports its dependencies when it runs, so that `--help` does not wait for PyTorch. A new command is one file
here, with `add(commands)`, and its name in `parser.GROUPS`.
"""

from vlm_agent.cli.parser import COMMANDS, FAILED, INTERRUPTED, OK, QUARANTINED, USAGE, main

__all__ = ["COMMANDS", "FAILED", "INTERRUPTED", "OK", "QUARANTINED", "USAGE", "main"]
