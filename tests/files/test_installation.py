"""The line that installs an extra names the place that this copy came from, and never the stranger's `vlm-agent`."""

import importlib.util
import json
import shlex
import shutil
from pathlib import Path

import pytest

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


@pytest.fixture
def line(tmp_path):
    """The line for `screens` of a copy that was installed from a wheel, with what pip recorded (PEP 610)."""

    def installed(direct_url):
        package, recorded = tmp_path / "site/vlm_agent", tmp_path / "site/vlm_phone_agent-0.1.0.dist-info"
        (package / "_shipped").mkdir(parents=True)
        (package / "files").mkdir()
        recorded.mkdir()
        shutil.copy(installation.__file__, package / "files")
        (recorded / "METADATA").write_text(METADATA)
        if direct_url is not None:
            (recorded / "direct_url.json").write_text(json.dumps(direct_url))
        spec = importlib.util.spec_from_file_location("installed", package / "files" / "installation.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.install_line("screens")

    return installed


def test_from_an_index_it_names_this_distribution(line):
    assert line(None) == "pip install 'vlm-phone-agent[screens]'"


def test_from_a_checkout_it_names_the_checkout():
    root = Path(__file__).resolve().parents[2]
    assert shlex.split(installation.install_line("gguf")) == ["pip", "install", "-e", f"{root}[gguf]"]


@pytest.mark.parametrize("name", ["it.whl", "a folder's"])
def test_from_a_wheel_or_folder_it_names_the_path(line, tmp_path, name):
    (tmp_path / name).mkdir()
    found = line({"url": (tmp_path / name).as_uri(), "dir_info": {}})
    assert shlex.split(found) == ["pip", "install", f"{tmp_path / name}[screens]"]


def test_where_the_wheel_is_gone_it_names_the_packages_of_the_extra(line, tmp_path):
    found = line({"url": (tmp_path / "gone.whl").as_uri(), "archive_info": {}})
    assert shlex.split(found) == ["pip", "install", "rapidocr>=3.10", "onnxruntime>=1.20"]


@pytest.mark.parametrize(
    ("recorded", "wanted"),
    [
        (
            {"url": "https://example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "vlm-phone-agent[screens] @ git+https://example.org/a.git@c0ffee",
        ),
        (
            {"url": "file:///srv/a.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}, "subdirectory": "b"},
            "vlm-phone-agent[screens] @ git+file:///srv/a.git@c0ffee#subdirectory=b",
        ),
        (
            {"url": "https://example.org/a.whl", "archive_info": {}},
            "vlm-phone-agent[screens] @ https://example.org/a.whl",
        ),
    ],
)
def test_from_a_url_it_names_the_url(line, recorded, wanted):
    assert shlex.split(line(recorded)) == ["pip", "install", wanted]


def test_no_text_of_the_repository_tells_to_install_the_strangers_distribution():
    root = installation.ROOT
    folders = ("vlm_agent", "docs", "slurm", "recipes", "eval")
    files = [path for folder in folders for path in (root / folder).rglob("*")]
    texts = [path for path in [*files, *root.glob("*.*")] if path.suffix in (".py", ".md", ".yaml", ".toml", ".sh")]
    assert [path for path in texts if "vlm-agent[" in path.read_text(encoding="utf-8")] == []
