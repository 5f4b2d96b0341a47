"""`python -m vlm_agent.cli` is `vlm-agent`."""

import sys

from vlm_agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
