"""Where this copy of the package was installed from, and the pip command that adds an extra to it."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

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

    It names the place that this copy came from: its checkout, the wheel, folder or repository that pip recorded
    (`direct_url.json`), or else the package index. Where that wheel or folder is gone, it names the packages of the
    extra.
    """
    if ROOT is not _SHIPPED:
        return f"pip install -e {shlex.quote(f'{ROOT}[{extra}]')}"
    from importlib.metadata import distributions  # `vlm-agent --help` needs none

    installed = next(iter(distributions(name=NAME, path=[str(_PACKAGE.parent)])), None)
    recorded = None if installed is None else installed.read_text("direct_url.json")
    if installed is None or recorded is None:
        wanted = [f"{NAME}[{extra}]"]
    else:
        origin = _origin(json.loads(recorded), extra)
        wanted = _packages(installed, extra) if origin is None else [origin]
    return shlex.join(["pip", "install", *wanted])


def _origin(recorded: dict, extra: str) -> str | None:
    """What pip takes for the recorded place (PEP 610) with the extra; None for a path that is gone."""
    url, folder = recorded["url"], recorded.get("subdirectory")
    if urlsplit(url).scheme == "file" and "vcs_info" not in recorded:
        path = Path(unquote(urlsplit(url).path), folder or "")
        return f"{path}[{extra}]" if path.exists() else None
    if "vcs_info" in recorded:
        url = f"{recorded['vcs_info']['vcs']}+{url}@{recorded['vcs_info']['commit_id']}"
    return f"{NAME}[{extra}] @ {url}" + (f"#subdirectory={folder}" if folder else "")


def _packages(installed: "Distribution", extra: str) -> list[str]:
    asked = [line.partition(";") for line in installed.requires or ()]
    return [need.strip() for need, _, marker in asked if f'extra == "{extra}"' in marker.replace("'", '"')]
