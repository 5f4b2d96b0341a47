"""A full disk: the converter reports it, leaves no incomplete file, and resumes when there is space."""

import errno
import os
import resource
import subprocess
import tempfile
from pathlib import Path

import pytest
from helpers.data.conversions import CLI, command, converted, tree, write_files

from vlm_agent.cli import FAILED, OK, main

FULL = "No space left on device"

SMALL_DISK = """
set -eu
mount -t tmpfs -o size=3300k none "$1"
shift
status=0
"$@" || status=$?
find "$DISK" -name '*.partial' >&2
test ! -e "$DISK/out/manifest.json"
cp -a "$DISK/out" "$KEPT"
exit $status
"""
"""Mounts a disk, fills it with a command, and copies its content before it is unmounted."""


def _mounting() -> list[str]:
    """What to write before a command that mounts: for users with name spaces of their own, or for root. Or nothing."""
    for unshare in (["unshare", "-rm"], ["unshare", "-m"]):
        script = [*unshare, "sh", "-c", 'mount -t tmpfs none "$1"', "sh", tempfile.gettempdir()]
        if subprocess.run(script, capture_output=True, check=False).returncode == 0:
            return unshare
    return []


UNSHARE = _mounting()


@pytest.fixture
def undisturbed(tmp_path):
    write_files(tmp_path / "in", "ab cd ef", size=(240, 120))
    converted(tmp_path / "in", output=tmp_path / "undisturbed")
    return tree(tmp_path / "undisturbed")


def _check_refusal(result, output, words):
    assert result.returncode == FAILED
    assert result.stderr.splitlines() == [
        f"vlm-agent convert: cannot write to {output}: {words}; fix this, then run the same command again to resume"
    ]


def _check_nothing_is_half_written(output: Path, undisturbed: dict) -> None:
    left = tree(output)
    assert "manifest.json" not in left
    assert left == {name: undisturbed[name] for name in left}


# Chosen when tests are collected, not skipped when they run: the two below it show the same without any privilege.
if UNSHARE:

    @pytest.mark.parametrize("workers", [1, 2])
    def test_a_full_disk_is_reported_and_the_same_command_resumes(tmp_path, undisturbed, workers):
        disk, kept = tmp_path / "disk", tmp_path / "kept"
        disk.mkdir()
        arguments = ["--input", tmp_path / "in", "--output", disk / "out", "--workers", workers]
        result = subprocess.run(
            [*UNSHARE, "sh", "-c", SMALL_DISK, "sh", disk, *CLI, *map(str, arguments)],
            env=os.environ | {"DISK": str(disk), "KEPT": str(kept)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        _check_refusal(result, disk / "out", FULL)
        _check_nothing_is_half_written(kept, undisturbed)
        assert any(name.endswith(".parquet") for name in tree(kept)), "two of the three files have room"
        kept.rename(disk / "out")
        assert command(*arguments).returncode == OK
        assert tree(disk / "out") == undisturbed


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exceeded_file_size_limit_is_reported_and_the_same_command_resumes(tmp_path, undisturbed, workers):
    """Quotas and some file systems limit file sizes; the kernel does so by RLIMIT_FSIZE."""
    output = tmp_path / "out"
    arguments = ["--input", tmp_path / "in", "--output", output, "--workers", workers]
    few = (100_000, resource.RLIM_INFINITY)
    result = command(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, few))
    _check_refusal(result, output, "File too large")
    _check_nothing_is_half_written(output, undisturbed)
    assert command(*arguments).returncode == OK
    assert tree(output) == undisturbed


@pytest.mark.parametrize(
    "written",
    [
        "plan.json",
        "general-00000-of-00003.parquet",
        "general-00001-of-00003.parquet.json",
        "duplicates.json",
        "quarantine.jsonl",
        "manifest.json",
    ],
)
def test_any_write_to_a_full_disk_is_reported_and_the_same_command_resumes(tmp_path, monkeypatch, capsys, written):
    """/dev/full stands in for one file that is written; to it the kernel answers as for a full disk."""
    inputs, output = write_files(tmp_path / "in", "ab ca ef", size=(160, 80)), tmp_path / "out"
    converted(inputs, output=tmp_path / "undisturbed")
    arguments = ["convert", "--input", str(inputs), "--output", str(output), "--workers", "1"]
    with monkeypatch.context() as full:
        full.setattr("vlm_agent.files.secrets", _Names(output, written))
        assert main(arguments) == FAILED
    assert capsys.readouterr().err == (
        f"vlm-agent convert: cannot write to {output}: {FULL}; fix this, then run the same command again to resume\n"
    )
    left = tree(output)
    assert not any(name.endswith((".partial", written)) for name in left)
    assert "manifest.json" not in left
    converted(inputs, output=output)
    assert tree(output) == tree(tmp_path / "undisturbed")


class _Names:
    """Gives the temporary name of one file that is written a meaning: a link to /dev/full."""

    def __init__(self, output: Path, written: str):
        self._output, self._written = output, written

    def token_hex(self, count: int) -> str:
        for folder in (self._output, *self._output.rglob("*")):
            if folder.is_dir() and not (link := folder / f".{self._written}.full.partial").is_symlink():
                link.symlink_to("/dev/full")
        return "full"


def test_a_read_only_disk_is_reported(tmp_path, monkeypatch, capsys):
    inputs, output = write_files(tmp_path / "in", "a"), tmp_path / "out"

    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(output))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert main(["convert", "--input", str(inputs), "--output", str(output)]) == FAILED
    assert f"cannot write to {output}: Read-only file system" in capsys.readouterr().err
