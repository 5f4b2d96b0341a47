"""Agents, action languages, sources, model families and devices of other packages: whether each can be imported."""

from vlm_agent.cli.doctor.check import AbsentError, Check


def _variants() -> str:
    from vlm_agent.action_languages import LANGUAGES
    from vlm_agent.agents import AGENTS
    from vlm_agent.datasets.sources.registry import SOURCES
    from vlm_agent.devices import DEVICES
    from vlm_agent.models.family import FAMILIES

    found = []
    for registry in (AGENTS, LANGUAGES, SOURCES, FAMILIES, DEVICES):
        for name in registry.plugins():
            registry[name]
            found.append(f"{name} ({registry.group.removeprefix('vlm_agent.')})")
    if not found:
        raise AbsentError("no installed package has entry points of vlm-agent")
    return ", ".join(found)


VARIANTS = Check(
    _variants,
    "imports every agent, action language, source, model family and device of other packages",
    ("agent files", "recipes", "convert --source", "act --device"),
    "CONTRIBUTING.md of the repository describes how a package adds one",
)
