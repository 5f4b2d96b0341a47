"""Where this copy of the package was installed from, and the pip command that adds an extra to it."""

import shlex
from pathlib import Path

NAME = "vlm-phone-agent"
"""The distribution. `vlm-agent` on the package index is another one."""

_PACKAGE = Path(__file__).parents[1]
_SHIPPED = _PACKAGE / "_shipped"
"""What `setup.py` copies into a wheel from the top of the repository."""

ROOT = _SHIPPED if _SHIPPED.is_dir() else _PACKAGE.parent
"""The folder of recipes/, eval/, deepspeed_configs/, docs/ and requirements*.txt: in a checkout its top."""

DOCS = ROOT / "docs"


def requirements_option(file: str) -> str:
    """The option of pip that installs the tested versions in the file, quoted for a shell."""
    return f"-r {shlex.quote(str(ROOT / file))}"


def install_line(extra: str) -> str:
    """The pip command that adds the extra to this copy, quoted for a shell.

    For a checkout it names its folder, for an installed wheel the packages of the extra.
    """
    if ROOT is not _SHIPPED:
        return f"pip install -e {shlex.quote(f'{ROOT}[{extra}]')}"
    from importlib.metadata import distributions  # `vlm-agent --help` needs none

    installed = next(iter(distributions(name=NAME, path=[str(_PACKAGE.parent)])))
    needs = [line.partition(";") for line in installed.requires or ()]
    wanted = [need.strip() for need, _, marker in needs if f'extra == "{extra}"' in marker.replace("'", '"')]
    return shlex.join(["pip", "install", *wanted])
