"""`python -m vlm_agent.cli.doctor NAME FILE`: the process of one check, which writes its result to FILE."""

import os
import sys
from pathlib import Path

from vlm_agent.cli.doctor.examine import run_check

if __name__ == "__main__":
    run_check(sys.argv[1], Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # threads of a library may not end
