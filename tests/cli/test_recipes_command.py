"""`vlm-agent recipes` lists the files that are part of the package and copies one of them."""

from pathlib import Path

import pytest

from vlm_agent.cli import FAILED, OK, main
from vlm_agent.recipe.yaml_file import find_shipped, label, shipped_files, summary

ROOT = Path(__file__).resolve().parents[2]


def test_every_shipped_file_is_listed_in_one_line_that_fits_a_header(capsys):
    assert main(["recipes"]) == OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(shipped_files()) > 20
    for line, path in zip(lines, shipped_files(), strict=True):
        assert line.startswith(f"{label(path)} ")
        assert summary(path).endswith((".", ":"))


def test_names_of_shipped_files_are_unique():
    stems = [path.stem for path in shipped_files()]
    assert len(set(stems)) == len(stems)


def test_a_recipe_is_printed_or_copied_and_never_over_another_file(tmp_path, capsys):
    header = (ROOT / "recipes/forkme.yaml").read_text()
    assert main(["recipes", "forkme"]) == OK
    assert capsys.readouterr().out == header
    copy = tmp_path / "new" / "mine.yaml"
    assert main(["recipes", "recipes/forkme.yaml", "--output", str(copy)]) == OK
    assert copy.read_text() == header
    copy.write_text("mine")
    assert main(["recipes", "forkme", "--output", str(copy)]) == FAILED
    assert "exists" in capsys.readouterr().err
    assert copy.read_text() == "mine"


def test_an_unknown_name_is_refused_with_the_nearest(capsys):
    assert main(["recipes", "forkmee"]) == FAILED
    assert "did you mean recipes/forkme.yaml?" in capsys.readouterr().err
    assert main(["recipes", "nope"]) == FAILED
    assert "did you mean" not in (error := capsys.readouterr().err) and "`vlm-agent recipes` lists" in error
    with pytest.raises(SystemExit):
        main(["recipes", "--output", "x.yaml"])


@pytest.mark.parametrize("name", ["forkme", "recipes/forkmee.yaml"])
def test_a_recipe_named_without_its_folder_is_suggested_to_other_commands(name, capsys):
    assert main(["train", "--config", name]) == FAILED
    assert f"{name} cannot be read: No such file or directory; did you mean recipes/forkme" in capsys.readouterr().err
    assert main(["train", "--config", "nowhere/recipe.yaml"]) == FAILED
    assert "did you mean" not in capsys.readouterr().err


def test_a_users_own_file_takes_precedence_over_the_shipped_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = Path("recipes/forkme.yaml")
    assert find_shipped(asked) == ROOT / asked
    asked.parent.mkdir()
    asked.write_text("mine")
    assert find_shipped(asked) == asked
    assert find_shipped(Path("recipes/absent.yaml")) == Path("recipes/absent.yaml")
    assert find_shipped(Path("recipes/../setup.py")) == Path("recipes/../setup.py")
