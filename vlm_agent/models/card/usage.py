"""How a model is used without this package: its messages and a few lines of transformers, or the command of vlm-agent.

Every text comes from the objects that training used: the sentences, the action language, the recipe.
"""

import html
import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from vlm_agent.episodes import Action, Episode, Step, UiElement
from vlm_agent.models.build import load_sentences
from vlm_agent.models.family import ModelFamily, family, family_of_recipe
from vlm_agent.models.run_layout import ADAPTER_WEIGHTS, BASE_FOLDER, MODEL_FOLDER, base_folder, trained
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.sentences.messages import answer, conversation
from vlm_agent.sentences.notes import UsedNotes
from vlm_agent.sentences.trajectory import TrajectorySentences

# Markdown of texts that may hold anything: a goal, a path or a name ends no table, code block or comment.

_SPECIAL = re.compile(r"([\\`*_\[\]|#])")
_OPTION = re.compile(r"(--[\w.-]+=)?((?:/|~).*)", re.DOTALL)


def plain(text: object) -> str:
    """One line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", html.escape(_printable(" ".join(str(text).split())), quote=False))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *([plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    """An indented block, which no line of the text can end."""
    return textwrap.indent(_printable(text), "    ", lambda line: True)


def _printable(text: str) -> str:
    """With `?` for control characters, which a terminal may execute."""
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)


def portable(value: Any) -> Any:
    """A text, or the texts of a list or mapping, with each absolute path (also of `--key=/path`) as its last name: what
    is published names no folder of this machine."""
    if isinstance(value, Mapping):
        return {key: portable(of_key) for key, of_key in value.items()}
    if isinstance(value, list | tuple):
        return [portable(item) for item in value]
    found = _OPTION.fullmatch(value) if isinstance(value, str) else None
    return value if found is None else f"{found[1] or ''}{Path(found[2]).name}"


HEADING = "## How to use"
UNNAMED = "BASE"
"""In place of the name of a base that is a folder of this machine and has no `published_as`."""

_PROMPTED = ("trajectory", "elements")
"""The kinds of sentences whose model answers to trajectories."""


def how_to_use(folder: Path, recipe: Recipe, name: str, bases: Mapping[str, str]) -> str:
    """The section of the card. `folder`: of the run; `name`: what commands call it. `bases`: recipe key → name on the
    hub, of the checkpoints that have one."""
    reason = _needs_package(folder, recipe)
    if reason is not None:
        command = code(f"vlm-agent act --checkpoint {shlex.quote(name)} --device DEVICE --goal GOAL")
        return f"{HEADING}\n\nThis model needs vlm-agent, because {reason}:\n\n{command}"
    if recipe.data.sentences not in _PROMPTED:
        return f"{HEADING}\n\nPlain transformers and any server load this model. Its prompts are those of its chats."
    sentences = load_sentences(folder, recipe.action_language.build(), recipe.data)
    weights = _Weights.of(folder, recipe, bases)
    parts = [
        HEADING,
        f"Plain transformers{' and peft load' if weights.base else ' loads'} this model. {_turns(sentences)} For the "
        "first step:",
        f"```python\n{_snippet(sentences, weights)}\n```",
        weights.note,
        f"{_answers(sentences)} Its language, as a model that was not trained on it would be prompted:",
        code(sentences.language.instructions),
        "The messages of a third step, with its two earlier ones:",
        code(_literal(sentences, example(3))),
    ]
    return "\n\n".join(part for part in parts if part)


def model_type(folder: Path, recipe: Recipe) -> str:
    """The `model_type` of the whole model in `folder`, or of the model under the adapter there."""
    saved = folder / MODEL_FOLDER / "config.json"
    if saved.is_file():
        return str(json.loads(saved.read_text(encoding="utf-8")).get("model_type"))
    if recipe.model.base is not None:
        base = base_folder(recipe.model.base)
        return model_type(base, read_recipe(trained(base).recipe))
    return str(family_of_recipe(recipe.model).config.model_type)


def is_adapter(folder: Path) -> bool:
    return (folder / MODEL_FOLDER / ADAPTER_WEIGHTS).is_file()


def _needs_package(folder: Path, recipe: Recipe) -> str | None:
    """Why plain transformers cannot use the model as it was trained; None if it can."""
    data, kind = recipe.data, model_type(folder, recipe)
    if kind not in CONFIG_MAPPING_NAMES:
        return f"transformers does not know its architecture, {kind}"
    if is_adapter(folder) and recipe.model.base is not None:
        return "its adapter lies on another run; `vlm-agent merge` writes a model that transformers loads"
    if data.sentences in _PROMPTED and type(family(kind)).save_for_serving is ModelFamily.save_for_serving:
        return "its prompts are no chat turns"
    if data.references is not None:
        return "its prompts have demonstrations that vlm-agent finds"
    if UsedNotes(data.notes).read_names:
        return "its prompts have texts that vlm-agent writes"
    return None


@dataclass(frozen=True)
class _Weights:
    """What the snippet loads. `base`: what loads the model under an adapter, as arguments in Python; "" for a whole
    model. `note`: a sentence for the reader."""

    dtype: str
    base: str = ""
    note: str = ""

    @classmethod
    def of(cls, folder: Path, recipe: Recipe, bases: Mapping[str, str]) -> "_Weights":
        model = recipe.model
        if not is_adapter(folder):
            return cls(model.dtype)
        # Beside an adapter, parts that were trained in full are in float32.
        dtype = "float32" if "full" in model.train.model_dump().values() else model.dtype
        notes = []
        if model.quantisation is not None:
            notes.append(
                f"The adapter was trained on a base in {model.quantisation}; on the base as published, answers may "
                "differ."
            )
        if model.starts_random:
            notes.append(f"Its base lies in `{BASE_FOLDER}`, beside `{MODEL_FOLDER}`.")
            return cls(dtype, json.dumps(f"../{BASE_FOLDER}"), " ".join(notes))
        (key,) = model.sources
        source = model.sources[key]
        if key not in bases:
            notes.append(
                f"`{UNNAMED}` stands for {plain(Path(source.location).name)}, which was a folder where the model was "
                "trained."
            )
        loaded = json.dumps(bases.get(key, UNNAMED))
        for name, value in {"gguf_file": source.gguf_file, "revision": source.revision}.items():
            loaded += "" if value is None else f", {name}={json.dumps(value)}"
        return cls(dtype, loaded, " ".join(notes))


_SNIPPET = """\
import torch
{imports}

MODEL = "."  # the folder that holds the weights and this card, or its name on the hub
{processor} = {auto_processor}.from_pretrained(MODEL)
{load}
{messages}
inputs = {processor}.apply_chat_template(
    messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
)
settings = GenerationConfig.from_pretrained(MODEL, max_new_tokens={tokens})
ids = model.generate(**inputs, generation_config=settings)[0, inputs["input_ids"].shape[1] :]
print({processor}.decode(ids, skip_special_tokens=True))  # for example {answer}"""


def _snippet(sentences: TrajectorySentences, weights: _Weights) -> str:
    is_text = sentences.as_html
    auto_model = "AutoModelForCausalLM" if is_text else "AutoModelForImageTextToText"
    auto_processor = "AutoTokenizer" if is_text else "AutoProcessor"
    load = f"model = {auto_model}.from_pretrained({weights.base or 'MODEL'}, dtype=torch.{weights.dtype})"
    imports = []
    if weights.base:
        imports.append("from peft import PeftModel")
        load += "\nmodel = PeftModel.from_pretrained(model, MODEL)"
    if not is_text:
        imports.insert(0, "from PIL import Image")
        load += '\nscreen = {"type": "image", "image": Image.open("screenshot.png")}'
    first = example(1)
    return _SNIPPET.format(
        imports="\n".join([*imports, f"from transformers import {auto_model}, {auto_processor}, GenerationConfig"]),
        processor="tokenizer" if is_text else "processor",
        auto_processor=auto_processor,
        load=load,
        messages=_literal(sentences, first),
        tokens=sentences.max_answer_tokens,
        answer=json.dumps(answer(sentences, first.steps[0]), ensure_ascii=False),
    )


def _turns(sentences: TrajectorySentences) -> str:
    """The form of a prompt, and what it has of earlier steps."""
    past = sentences.past
    if sentences.as_html:
        form = "The goal is a message of the system, and each screen is one of the user: its elements as HTML."
    else:
        form = (
            "A prompt has the system turn, and then a turn of the user with the goal and the first screenshot; each "
            "later screenshot is a turn of its own."
        )
    if past is None:
        return f"{form} All earlier screens and answers of the task stay in the conversation."
    shown = "No earlier screen is shown" if not past.screens else f"The last {past.screens} earlier screen(s) are shown"
    words = "all others" if past.words is None else f"at most {past.words} before them"
    return f"{form} {shown} with their answers, and {words} are lines of words after the goal."


def _answers(sentences: TrajectorySentences) -> str:
    """What an answer has before its action."""
    if not (names := sentences.notes.learned_names):
        return "An answer is one action."
    return f"An answer has a line each for {', '.join(names)}; its last line is the action."


def example(steps: int) -> Episode:
    """The first steps of a made-up task; the last action is the answer."""
    names = enumerate(("Network", "Devices", "Sound"))
    elements = tuple(UiElement((0.1 * row, 0.05, 0.08, 0.5), name) for row, name in names)
    actions = (Action.tap(0.14, 0.3), Action.swipe((0.8, 0.5), (0.2, 0.5)), Action.complete())
    notes = {"think": "Bluetooth is a setting of devices.", "action": "Tap on Devices."}
    notes |= {"plan": "Open Devices\nTurn on Bluetooth", "step": "Open Devices"}
    screen = np.zeros((8, 4, 3), np.uint8)
    shown = tuple(Step(screen, action, elements, "", notes) for action in actions[:steps])
    return Episode("", "", "Turn on Bluetooth", shown)


_SCREEN = {"type": "image"}
"""In place of the variable `screen` of the snippet."""


def _literal(sentences: TrajectorySentences, episode: Episode) -> str:
    """The messages of `conversation` in Python, one a line."""
    messages = conversation(sentences, episode, lambda _: _SCREEN)
    lines = [json.dumps(message, ensure_ascii=False).replace(json.dumps(_SCREEN), "screen") for message in messages]
    return "\n".join(["messages = [", *(f"    {line}," for line in lines), "]"])
