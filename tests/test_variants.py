"""Variants do not import each other, and everything else knows them by their registry alone.

The contracts of pyproject.toml are about packages. These claims are about whatever is registered, so that a new variant
is covered without being named anywhere.
"""

from itertools import permutations

import grimp
import pytest

from vlm_agent.action_languages import LANGUAGES
from vlm_agent.agents import AGENTS
from vlm_agent.datasets.sources.registry import SOURCES
from vlm_agent.devices import DEVICES
from vlm_agent.training.data.sentence_kinds import SENTENCE_KINDS


def _package(module: str, folder: str) -> str:
    """The file or folder of a variant in `folder`: vlm_agent.agents.vlm.agent → vlm_agent.agents.vlm."""
    return ".".join(module.split(".")[: folder.count(".") + 2])


KINDS = "vlm_agent.training.data.sentence_kinds"

FOLDERS = {
    "vlm_agent.agents": [kind.__module__ for kind in AGENTS.values()],
    "vlm_agent.action_languages": [settings.__module__ for settings in LANGUAGES.values()],
    "vlm_agent.datasets.sources": [source.read.__module__ for source in SOURCES.values()],
    "vlm_agent.devices": [kind.parse.__module__ for kind in DEVICES.values()],
    KINDS: [kind.__module__ for kind in SENTENCE_KINDS.values()],
}
"""Folder of variants → modules of the registered ones."""
VARIANTS = {
    folder: sorted({_package(module, folder) for module in modules if module.startswith(f"{folder}.")})
    for folder, modules in FOLDERS.items()
}
ALLOWED = {
    "vlm_agent.agents.scripted": {"vlm_agent.evaluation.online.runs"},
    "vlm_agent.agents.vlm": {
        "vlm_agent.cli.serve_check",
        "vlm_agent.reinforcement.data",
        "vlm_agent.reinforcement.rollouts",
    },
}
"""The upper bound on the simulated phone is a script of right actions; serve-check compares a run's model, no other
agent, with a server; reinforcement trains the model that samples, and scores its tokens."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("vlm_agent", cache_dir=None)


def importers(graph: grimp.ImportGraph, variant: str) -> set[str]:
    """Modules outside a variant that import it."""
    own = {variant, *graph.find_descendants(variant)}
    return {importer for module in own for importer in graph.find_modules_that_directly_import(module)} - own


@pytest.mark.parametrize("folder", ["vlm_agent.agents", "vlm_agent.datasets.sources", "vlm_agent.devices", KINDS])
def test_variants_do_not_import_each_other(graph, folder):
    for one, other in permutations(VARIANTS[folder], 2):
        chain = graph.find_shortest_chain(importer=one, imported=other, as_packages=True)
        assert chain is None, " imports ".join(chain)


@pytest.mark.parametrize("folder", ["vlm_agent.agents", "vlm_agent.action_languages", KINDS])
def test_agents_and_languages_are_imported_by_their_own_folder_alone(graph, folder):
    for variant in VARIANTS[folder]:
        outside = {name for name in importers(graph, variant) if not f"{name}.".startswith(f"{folder}.")}
        assert outside <= ALLOWED.get(variant, set()), f"{variant} is imported by {outside}; use the registry"
