"""The tables of claims in docs/papers.md, computed from records of runs.

    python -m studies.claims            # writes the tables
    python -m studies.claims --check    # prints the rows that are not those of the records; then the status is 1

claims.yaml names for each claim the paper's number, the runs, the figure and how the runs are compared. A change of a
cell is a change of a record or of that file. Runs at uncommitted code are not used.
"""

import argparse
import sys
from difflib import unified_diff
from pathlib import Path

from studies.claims.tables import PAGE, with_tables
from vlm_agent.errors import UserError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="default: %(default)s")
    options = parser.parse_args()
    old = options.page.read_text(encoding="utf-8")
    try:
        new = with_tables(old)
    except UserError as error:
        sys.exit(str(error))
    if options.check:
        lines = unified_diff(old.splitlines(), new.splitlines(), str(options.page), "records", lineterm="", n=0)
        different = "\n".join(lines)
        sys.exit(f"{different}\npython -m studies.claims writes these rows" if different else 0)
    options.page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
