"""Inputs: agents of one model, one prompt, without history, that differ in how they see a screen; and their runs."""

import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from studies.ablation.runs import ROOT, Run, command, folder_name, recipe_digest
from studies.vision_tasker.inputs.data import SIZE, make_chats, make_data, read_texts, readers_of
from studies.vision_tasker.questions.truth import Truth
from studies.vision_tasker.questions.views import View, in_html, in_words
from vlm_agent.agents.vision_tasker.prompts import PROMPTS
from vlm_agent.errors import UserError
from vlm_agent.evaluation.comparison.evaluated import read_online
from vlm_agent.files import atomic_write, sha256_of
from vlm_agent.models.serving import served_model
from vlm_agent.recipe.yaml_file import read_mapping
from vlm_agent.screens.seen import Understood
from vlm_agent.training.run_folder.layout import FINISHED

RECIPE = ROOT / "recipes/comparison/text_chats_tiny.yaml"
STEPS = 3200

AGENTS = ROOT / "eval/agents"

MAX_TOKENS = 80
"""Limit of a reply. Replies of the chats have fewer; one that does not end costs no more."""


@dataclass(frozen=True)
class Input:
    """`agent`: its file. `elements`: origin of the screen's elements. `view`: what it shows of a screen, which limits
    any model."""

    agent: str
    elements: str
    view: Callable[[Truth, Understood], View]


INPUTS = {
    "words read": Input("vision_tasker.yaml", "phone", lambda truth, seen: in_words(seen)),
    "html read": Input("vision_tasker_html.yaml", "read", lambda truth, seen: in_html(seen.elements)),
    "html given": Input("vision_tasker_html.yaml", "phone", lambda truth, seen: in_html(truth.elements)),
}
"""The agent of words reads screens by itself."""


@dataclass(frozen=True)
class InputRun(Run):
    """The agent of an input, named `name`, with the model of a seed, which all inputs share: it is trained on the chats
    of all of them, files of the folder `chats`, in the run `model`. `episodes`: of training. `output`: of the study."""

    episodes: int = 0
    chats: Path = Path()
    model: Path = Path()
    output: Path = Path()

    @property
    def trained(self) -> Path:
        return self.model

    def complete_files(self) -> None:
        make_data(self.data, self.episodes, self.limit)
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.trained / FINISHED).is_file():
            self._write_chats()
            keys = ("--output", self.trained, "--data.chats", self.chats, "--seed", self.seed, *self.keys)
            self._timed("training", "train", "--config", self.recipe, *keys)
        if not self.has_files:
            groups = ("--groups", self.data / "aitw/groups.json", "--controls", "none")
            with self._served() as agent:
                data = ("--shards", self.data / "shards", "--limit", self.limit, *groups)
                self._timed("evaluation", "evaluate", *agent, *data, "--output", self.evaluation)

    def _write_chats(self) -> None:
        """Once for all seeds. The texts of the screens are read before, where a kill loses one screen."""
        read_texts(self.data, readers_of(self.output))
        for name, shown in INPUTS.items():
            path = self.chats / chats_name(name)
            if not path.is_file():
                agent = self.output / f"{folder_name(name)}.yaml"
                write_agent(
                    agent, agent_of(shown, self.output) | {"endpoint": "http://localhost:1/v1", "model": "none"}
                )
                make_chats(path, self.data, agent, shown.elements)

    def _play(self, tasks: int) -> Mapping[str, dict]:
        output, task_set = self.folder / "online", self.folder / "tasks.yaml"
        task_set.write_text(f"task_set: simulated\nsize: {list(SIZE)}\n", encoding="utf-8")
        keys = ("--tasks", tasks, "--task-set", task_set, "--controls", "none", "--output", output)
        with self._served() as agent:
            command("evaluate", "--online", *agent, *keys)
        return read_online(output)

    @contextmanager
    def _served(self) -> Iterator[tuple]:
        """The options of `evaluate` for the agent of the served model. Replies are kept, so a killed evaluation asks
        for the others alone."""
        path, shown = self.folder / "agent.yaml", INPUTS[self.name]
        with served_model(self.trained, self.folder / "server.log") as (endpoint, model):
            write_agent(path, agent_of(shown, self.output) | {"endpoint": endpoint, "model": model})
            yield "--agent", path, "--elements", shown.elements


def chats_name(name: str) -> str:
    """The file of an input's chats."""
    return f"{folder_name(name)}.jsonl"


def write_agent(path: Path, content: Mapping) -> None:
    with atomic_write(path) as part:
        part.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")


def run_of(name: str, seed: int, options: Namespace) -> InputRun:
    """An input with a seed. The folders depend on the number of episodes, the agent files, their prompts and the whole
    recipe but for its seed."""
    steps = STEPS if options.steps is None else options.steps
    keys = {"training.steps": str(steps), "training.save_steps": str(max(1, steps // 8))}
    sources = sha256_of([*(AGENTS / shown.agent for shown in INPUTS.values()), *PROMPTS.values()])[:8]
    digest = f"{options.episodes}_{recipe_digest(RECIPE, keys)}_{sources}"
    return InputRun(
        name,
        seed,
        options.output / f"{folder_name(name)}_{digest}" / str(seed),
        recipe=RECIPE,
        data=options.data,
        limit=options.limit,
        episodes=options.episodes,
        keys=tuple(word for key, value in keys.items() for word in (f"--{key}", value)),
        chats=options.data / f"chats_{sources}",
        model=options.output / f"model_{digest}" / str(seed),
        output=options.output,
    )


def agent_of(shown: Input, output: Path) -> dict:
    """The agent file of an input, without its server."""
    content = read_mapping(AGENTS / shown.agent, UserError)
    readers = json.loads(readers_of(output).model_dump_json())
    return content | {"history": False, "max_tokens": MAX_TOKENS, "concurrency": 2, "readers": readers}
