"""Links and paths of the pages exist, and the word check finds what it has to."""

import re
import sys
from pathlib import Path

import pytest

from vlm_agent.cli.parser import make_parser

ROOT = Path(__file__).parents[1]
READ = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEMPLATE = ROOT / "studies/shipped_base/base_card.md"
FIGURES = [path for folder in ("benchmarks", "studies", "vlm_agent") for path in (ROOT / folder).rglob("*.md")]
PAGES = [*READ, ROOT / "CONTRIBUTING.md", *sorted({*FIGURES} - {TEMPLATE})]
FOLDERS = "vlm_agent|benchmarks|studies|tests|tools|eval|recipes|docs|slurm|deepspeed_configs"
NOT_FILES = (
    "taps.py",
    "prefixed.py",
    "square.py",
    "centre.py",
    "centre.yaml",
    "kitchen.yaml",
    "grey_phone.py",
    "X.yaml",
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_exist(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    paths = re.findall(rf"(?<![\w/])((?:{FOLDERS})/[\w/.-]*\w/?)", text)
    missing = [path for path in paths if not (ROOT / path).exists() and Path(path).name not in NOT_FILES]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_headings_that_links_name_exist(page):
    for link, heading in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            target = page.parent / link if link else page
            headings = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert heading in [re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings], link


def test_pages_that_code_recipes_and_scripts_name_exist():
    files = [
        path for folder in ("vlm_agent", "eval", "recipes", "slurm", "studies") for path in (ROOT / folder).rglob("*")
    ]
    texts = [path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".yaml", ".sh", ".sbatch")]
    named = {name for text in texts for name in re.findall(r"\bdocs/(\w+\.md)|DOCS / '(\w+\.md)'", text)}
    assert {page for names in named for page in names if page} <= {page.name for page in READ}


def test_modules_that_the_page_extending_names_exist():
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    names = re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)*(?:\.py|/))`", text)
    files = {path.name for path in (ROOT / "vlm_agent").rglob("*.py")}
    missing = [
        name
        for name in names
        if not (ROOT / "vlm_agent" / name).exists() and not (ROOT / name).exists()
        if name not in files and not list((ROOT / "vlm_agent").rglob(name.rstrip("/")))
    ]
    assert len(names) > 30
    assert missing == []


def words(page):
    """The words of a page, of tables and commands too."""
    return re.findall(r"\S*\w\S*", page.read_text(encoding="utf-8"))


def sentence_lengths(page):
    """Words of each sentence outside headings, tables and commands."""
    outside = r"^```.*?^```|^    [^\n]*$|^[#|][^\n]*$|!\[[^\n]*$"
    text = re.sub(outside, "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    paragraphs = re.split(r"\n\s*\n|\n(?=- |\d+\. )", text)
    sentences = [one for paragraph in paragraphs for one in re.split(r"(?<=[.?!:])\**\s", paragraph)]
    return [count for one in sentences if (count := len(re.findall(r"\S*\w\S*", one)))]


def test_the_pages_are_few_and_short():
    assert len(READ) <= 1 + 9
    assert len(words(ROOT / "README.md")) <= 700
    assert sum(len(words(page)) for page in READ) <= 16_000


@pytest.mark.parametrize("page", READ, ids=lambda page: page.name)
def test_nine_of_ten_sentences_have_at_most_22_words(page):
    lengths = sorted(sentence_lengths(page))
    assert lengths[int(0.9 * len(lengths))] <= 22


KEYS = re.compile(r"--(?:output|(?:agent|model|data|training)\.\w+.*)")
"""Keys of a recipe or an agent file."""


@pytest.mark.parametrize("page", READ, ids=lambda page: page.name)
def test_commands_of_the_pages_have_options_that_exist(page):
    for line in re.findall(r"^    vlm-agent (\w.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        command, *rest = line.partition(" #")[0].split()
        known = {name for action in commands_of(command)._actions for name in action.option_strings}
        options = {word for word in rest if word.startswith("--")}
        assert {option for option in options - known if not KEYS.fullmatch(option)} == set(), line


def commands_of(name):
    """The parser of a command."""
    (commands,) = (action.choices for action in make_parser(name)._actions if isinstance(action.choices, dict))
    return commands[name]


@pytest.fixture
def check_words(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    yield __import__("check_words")
    sys.modules.pop("check_words", None)


def test_words_are_found_in_docstrings_messages_identifiers_and_pages(check_words, tmp_path):
    package = tmp_path / "vlm_agent" / "agents"
    package.mkdir(parents=True)
    code = [
        "def told(given):",
        '    """What is',
        '    said here."""',
        '    x_made = f"there is no {given}"',
        '    return x_made, "told"',
    ]
    (package / "x.py").write_text("\n".join(code))
    page = "Nobody reads `told`.\n<!-- words: off -->\nupon\n<!-- words: on -->\n```\nsaid\n```\nIt goes on.\n"
    (tmp_path / "README.md").write_text(page)
    found = list(check_words.findings(tmp_path))
    assert {unit for unit, _ in found} == {"vlm_agent/agents/x.py", "README.md"}
    assert sorted(line.partition(":")[2] for _, line in found) == [
        "1: Nobody",
        "1: given (in the identifier given)",
        "1: told (in the identifier told)",
        "3: said",
        "4: made (in the identifier x_made)",
        "4: there is no",
        "8: goes on",
    ]


@pytest.mark.parametrize("folder", ["vlm_agent", "shipped_weights", "tests", "tools"])
def test_docstrings_without_their_noun_are_found(check_words, tmp_path, folder):
    code = [
        '"""That of x."""',
        "LIMIT = 1",
        '"""Of a line."""',
        "def f():",
        '    """Often read."""',
        '    return "Of y"',
    ]
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "x.py").write_text("\n".join(code))
    assert [line.partition(" (")[0] for _, line in check_words.findings(tmp_path)] == [
        f"{folder}/x.py:1: That of",
        f"{folder}/x.py:3: Of",
    ]


def test_a_word_fails_unless_it_is_kept_on_purpose(check_words, monkeypatch, capsys):
    monkeypatch.setattr(check_words, "KEPT", {})
    monkeypatch.setattr(check_words, "findings", lambda: [("vlm_agent/x.py", "vlm_agent/x.py:1: upon")])
    assert check_words.main(False) == 1
    assert "x.py:1: upon" in capsys.readouterr().err
    monkeypatch.setattr(check_words, "KEPT", {"vlm_agent/x.py": 1})
    assert check_words.main(False) == 0
    monkeypatch.setattr(check_words, "findings", list)
    assert check_words.main(False) == 1
    assert "lower its numbers: vlm_agent/x.py" in capsys.readouterr().err


PAPERS = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")


def test_files_that_the_page_of_papers_names_exist():
    names = set(re.findall(r"`([a-z_0-9]+(?:/[\w.-]+)*(?:/|\.(?:py|yaml)))`", PAPERS))
    roots = (ROOT, ROOT / "vlm_agent")
    assert len(names) > 60
    assert [name for name in sorted(names) if not any((root / name).exists() for root in roots)] == []
