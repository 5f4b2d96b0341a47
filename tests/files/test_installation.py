"""The line that installs an extra names the checkout or the packages, and never the stranger's `vlm-agent`."""

import importlib.util
import shlex
import shutil
from pathlib import Path

from vlm_agent.files import installation

METADATA = """Metadata-Version: 2.1
Name: vlm-phone-agent
Version: 0.1.0
Requires-Dist: numpy>=2
Provides-Extra: screens
Requires-Dist: rapidocr>=3.10; extra == "screens"
Requires-Dist: onnxruntime>=1.20; extra == 'screens'
Requires-Dist: gguf>=0.10; extra == "gguf"
"""


def test_from_a_checkout_it_names_the_checkout():
    root = Path(__file__).resolve().parents[2]
    assert shlex.split(installation.install_line("gguf")) == ["pip", "install", "-e", f"{root}[gguf]"]


def test_from_a_wheel_it_names_the_packages_of_the_extra(tmp_path):
    package, recorded = tmp_path / "site/vlm_agent", tmp_path / "site/vlm_phone_agent-0.1.0.dist-info"
    (package / "_shipped").mkdir(parents=True)
    (package / "files").mkdir()
    recorded.mkdir()
    shutil.copy(installation.__file__, package / "files")
    (recorded / "METADATA").write_text(METADATA)
    spec = importlib.util.spec_from_file_location("installed", package / "files" / "installation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.install_line("screens")
    assert shlex.split(found) == ["pip", "install", "rapidocr>=3.10", "onnxruntime>=1.20"]


def test_no_text_of_the_repository_tells_to_install_the_strangers_distribution():
    root = installation.ROOT
    folders = ("vlm_agent", "docs", "slurm", "recipes", "eval")
    files = [path for folder in folders for path in (root / folder).rglob("*")]
    texts = [path for path in [*files, *root.glob("*.*")] if path.suffix in (".py", ".md", ".yaml", ".toml", ".sh")]
    assert [path for path in texts if "vlm-agent[" in path.read_text(encoding="utf-8")] == []
