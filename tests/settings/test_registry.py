"""Agents, action languages, sources, model families and devices of other packages are found by entry points."""

import subprocess
import sys
import textwrap

import pytest
from helpers.programs.plugins import install

from vlm_agent.action_languages import LANGUAGES
from vlm_agent.agents import AGENTS
from vlm_agent.cli import FAILED, main
from vlm_agent.cli.doctor.check import AbsentError
from vlm_agent.cli.doctor.checks import CHECKS
from vlm_agent.datasets.sources.registry import SOURCES
from vlm_agent.devices import DEVICES
from vlm_agent.devices.task_sets import TASK_SETS
from vlm_agent.models.family import FAMILIES
from vlm_agent.settings import PluginError, Registry

REGISTRIES = (AGENTS, LANGUAGES, SOURCES, FAMILIES, DEVICES, TASK_SETS)
GROUPS = ("agents", "action_languages", "sources", "model_families", "devices", "task_sets")


def test_every_registry_has_a_group_of_its_own():
    assert [registry.group for registry in REGISTRIES] == [f"vlm_agent.{group}" for group in GROUPS]


def registry():
    return Registry("vlm_agent.toys", {"own": "pathlib:Path"}, subclass_of=object)


def test_variants_of_packages_are_listed_after_own_ones_and_imported_at_their_use(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, {"vlm_agent.toys": {"toy": "toys:Toy"}}, toys="class Toy: pass")
    found = registry()
    assert (list(found), len(found), "toy" in found, "other" in found) == (["own", "toy"], 2, True, False)
    assert "toys" not in sys.modules
    assert found["toy"].__name__ == "Toy" and found["own"].__name__ == "Path"
    with pytest.raises(KeyError):
        found["other"]


BROKEN = {
    "absent:Toy": "(ModuleNotFoundError: No module named 'absent'); mend or uninstall toys",
    "toys:Absent": "cannot be loaded (AttributeError: module 'toys' has no attribute 'Absent')",
    "toys": "is not a subclass of Registry; mend or uninstall toys",
    "toys:Toy": "is not a subclass of Registry",
    "toys:toy": "is not a subclass of Registry",
    "broken:Toy": "cannot be loaded (ZeroDivisionError: division by zero)",
    "wrong:Toy": "cannot be loaded (SyntaxError: '(' was never closed",
    "no module: Toy": "cannot be loaded (",
}


@pytest.mark.parametrize("value", BROKEN)
def test_a_broken_variant_names_package_entry_point_and_reason_when_it_is_used(tmp_path, monkeypatch, value):
    modules = {"toys": "class Toy: pass\ntoy = Toy()", "broken": "1 / 0", "wrong": "("}
    install(tmp_path, monkeypatch, {"vlm_agent.toys": {"toy": value}}, **modules)
    found = Registry("vlm_agent.toys", {"own": "pathlib:Path"}, subclass_of=Registry)
    assert found["own"] and list(found) == ["own", "toy"]
    with pytest.raises(PluginError) as problem:
        found["toy"]
    assert f"toy = {value} (entry point vlm_agent.toys of toys 1.0)" in str(problem.value)
    assert BROKEN[value] in str(problem.value) and "\n" not in str(problem.value)


def test_a_variant_with_the_name_of_an_own_one_is_refused(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, {"vlm_agent.toys": {"own": "toys:Toy"}}, toys="class Toy: pass")
    for look_up in (lambda found: found["own"], list, lambda found: "own" in found and "other" in found):
        with pytest.raises(
            PluginError, match=r"own = toys:Toy .* of toys 1.0\) has the name of a variant of vlm-agent"
        ):
            look_up(registry())


def test_two_packages_with_one_name_are_both_named(tmp_path, monkeypatch):
    for name in ("toys", "more_toys"):
        points = {"vlm_agent.toys": {"toy": f"{name}:Toy"}}
        install(tmp_path / name, monkeypatch, points, package=name, **{name: "class Toy: pass"})
    with pytest.raises(PluginError, match="uninstall one of them"):
        registry()["toy"]


def test_a_source_whose_own_name_differs_is_refused(tmp_path, monkeypatch):
    source = "from vlm_agent.datasets.sources import aitz\nSOURCE = aitz.SOURCE"
    install(tmp_path, monkeypatch, {"vlm_agent.sources": {"toy": "toys:SOURCE"}}, toys=source)
    with pytest.raises(PluginError, match="has the name 'aitz' itself"):
        SOURCES["toy"]


def test_a_command_reports_a_broken_agent_in_one_line_and_runs_without_it(tmp_path, monkeypatch, capsys):
    install(tmp_path, monkeypatch, {"vlm_agent.agents": {"toy": "toys:Toy"}}, toys="raise OSError('no licence')")
    (tmp_path / "toy.yaml").write_text("agent: toy\n")
    (tmp_path / "other.yaml").write_text("agent: scripted\nactions: [complete]\n")
    command = ["evaluate", "--online", "--tasks", "1", "--controls", "none"]
    command += ["--output", str(tmp_path / "out"), "--agent"]
    assert main([*command, str(tmp_path / "toy.yaml")]) == FAILED
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "toy = toys:Toy (entry point vlm_agent.agents of toys 1.0) cannot be loaded (OSError: no licence)" in line
    assert main([*command, str(tmp_path / "other.yaml")]) == 0


def test_a_broken_device_is_one_line_too(tmp_path, monkeypatch, capsys):
    install(tmp_path, monkeypatch, {"vlm_agent.devices": {"toy": "toys:TOY"}}, toys="TOY = None")
    with pytest.raises(SystemExit):
        main(["act", "--agent", "x", "--device", "toy:1"])
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "toy = toys:TOY (entry point vlm_agent.devices of toys 1.0) is not an instance of DeviceKind" in line


def test_the_doctor_lists_variants_of_packages_and_names_a_broken_one(tmp_path, monkeypatch):
    with pytest.raises(AbsentError):
        CHECKS["variants"].run()
    points = {"vlm_agent.devices": {"toy": "toys:TOY"}, "vlm_agent.action_languages": {"plain": "toys:Plain"}}
    code = """
        from vlm_agent.action_languages.binned import BinnedSettings as Plain
        from vlm_agent.devices import DeviceKind
        TOY = DeviceKind(("toy",), lambda which: None)
    """
    install(tmp_path / "one", monkeypatch, points, toys=textwrap.dedent(code))
    assert CHECKS["variants"].run() == "plain (action_languages), toy (devices)"
    install(tmp_path / "two", monkeypatch, {"vlm_agent.agents": {"bad": "absent:X"}}, package="more")
    with pytest.raises(PluginError, match=r"of more 1\.0\) cannot be loaded"):
        CHECKS["variants"].run()


def test_the_help_reads_no_metadata_of_packages():
    code = textwrap.dedent("""
        from vlm_agent.cli import main
        try:
            main(["--help"])
        except SystemExit:
            from vlm_agent import settings
            assert not settings._entry_points.cache_info().currsize
    """)
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
