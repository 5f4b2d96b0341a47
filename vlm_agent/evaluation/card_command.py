"""The command on a model card: it evaluates the model with the settings that decided the scores.

Another run of it has the same identity (`Plan.identity`). What no option can set stands in a file that the
command names in capitals, and `notes` has the content of that file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlm_agent.agents.controls import controls_of
from vlm_agent.agents.loading import agent_settings
from vlm_agent.errors import DatasetError
from vlm_agent.evaluation.identity import AGENT, READ_ELEMENTS
from vlm_agent.recipe.yaml_file import label, read_mapping, shipped_files

_OUTPUT = ("--output", "OUT")
_BENCHMARK_FILE = "BENCHMARK.yaml"


@dataclass(frozen=True)
class CardCommand:
    """`words`: the command. `notes`: the content of each file that it names in capitals."""

    words: list[str]
    notes: tuple[str, ...] = ()


def offline_command(run: str, name: str, plan: Mapping[str, Any]) -> CardCommand:
    """`run`: the run folder, `name`: what the command calls it, `plan`: the content of plan.json."""
    described, others = plan["described"], plan["given"]
    agent = _agent(run, name, described)
    benchmark = _benchmark(others["benchmark"], described.get("draw"))
    words = [*agent, *benchmark.words, "--shards", others["shards"], "--split", described["split"]]
    words += [] if described["limit"] is None else ["--limit", str(described["limit"])]
    _, *variants = others["passes"][0]
    controls = [name for name in described["runs"] if name != AGENT and name not in variants]
    words += [f"--{variant}" for variant in variants] + _controls(described, controls)
    return CardCommand(["vlm-agent", "evaluate", *words, *_OUTPUT], benchmark.notes)


def online_command(run: str, name: str, about: Mapping[str, Any], controls: Sequence[str]) -> CardCommand:
    """`about`: that of online.json, `controls`: those of its runs."""
    agent = _agent(run, name, about)
    words = ["--tasks", str(about["tasks"]), "--seed", str(about["seed"])]
    words += ["--long-screens"] if about.get("long_screens") else []
    return CardCommand(["vlm-agent", "evaluate", "--online", *agent, *words, *_controls(about, controls), *_OUTPUT])


def _agent(run: str, name: str, identity: Mapping[str, Any]) -> list[str]:
    """The options that select the agent, with its elements."""
    settings = agent_settings(checkpoint=run)
    fields = type(settings).model_fields
    changed = {key: value for key, value in identity["agent"].items() if key in fields and value != fields[key].default}
    elements = ["--elements", "read"] if READ_ELEMENTS in identity else []
    words = [word for key, value in changed.items() for word in (f"--agent.{key}", _value(value))]
    return ["--checkpoint", name, *words, *elements]


def _benchmark(name: str | None, draw: Mapping[str, Any] | None) -> CardCommand:
    """The benchmark file of this name that comes with the package, or for a draw of another one its keys."""
    if name is not None and (path := _shipped(name, draw)) is not None:
        return CardCommand(["--benchmark", path])
    if not draw:
        return CardCommand([])
    content = {"name": name, "about": "…", "source": "…"} | dict(draw)
    return CardCommand(["--benchmark", _BENCHMARK_FILE], (_note(_BENCHMARK_FILE, content),))


def _shipped(name: str, draw: Mapping[str, Any] | None) -> str | None:
    from vlm_agent.evaluation.benchmark import Benchmark

    for path in shipped_files():
        if path.parent.name == "eval" and (content := read_mapping(path, DatasetError)).get("name") == name:
            return label(path) if Benchmark.model_validate(content).draw == (draw or {}) else None
    return None


def _controls(identity: Mapping[str, Any], chosen: Sequence[str]) -> list[str]:
    every = controls_of(identity["text_inputs"])
    if tuple(chosen) == every:
        return []
    return ["--controls", *(chosen or ("none",))]


def _note(file: str, content: Mapping[str, Any]) -> str:
    return f"{file}: " + ", ".join(f"{key}: {_value(value)}" for key, value in content.items())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)
