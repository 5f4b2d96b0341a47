"""Runs the Python of model cards in one process that cannot import this package, as another user would."""

import json
import re
import subprocess
import sys
from pathlib import Path

from vlm_agent.files import imports

_CODE = """
import importlib.abc, io, json, os, sys
from contextlib import redirect_stdout

operators = {}
exec(open(sys.argv[1]).read(), operators)  # what this machine's torchvision needs beside a CPU build of PyTorch

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "vlm_agent":
            raise ImportError("this package is absent")

sys.meta_path.insert(0, Without())
results = []
for folder, snippet in json.load(sys.stdin):
    os.chdir(folder)
    printed, names = io.StringIO(), {}
    with redirect_stdout(printed):
        exec(snippet, names)
    results.append([names["ids"].tolist(), printed.getvalue().rstrip("\\n")])
json.dump(results, sys.stdout)
"""


def snippet_of(folder: Path) -> str:
    """The Python of the card in a folder."""
    (found,) = re.findall(r"^```python\n(.*?)^```$", (folder / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    return found


def run_snippets(folders: list[Path]) -> list[tuple[list[int], str]]:
    """(ids, printed text) of the card in each folder, run in that folder."""
    work = [[str(folder), snippet_of(folder)] for folder in folders]
    result = subprocess.run(
        [sys.executable, "-c", _CODE, imports.__file__],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HOME": str(folders[0])},
    )
    assert result.returncode == 0, result.stderr
    return [(ids, text) for ids, text in json.loads(result.stdout)]
