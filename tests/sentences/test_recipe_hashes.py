"""Token ids, labels, kinds, roles, weights and screen sizes of every shipped recipe, and of variants of its `data`.

`PYTHONPATH=.:tests python tests/sentences/test_recipe_hashes.py` writes the hashes again. Checkpoints that
are not on every machine have stand-ins for their tokenizers (`recipe_costs.stand_ins`). The
episodes are real ones of AITW and AitZ, simulated ones, and small ones with texts that are hard to write.
"""

import hashlib
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny
from helpers.data.aitw_episodes import read_episodes
from helpers.data.made_episodes import made_episode
from helpers.data.notes import ALL, FORMS, with_plans, with_texts
from helpers.data.step_ids import target_text
from helpers.models.tiny_encoder import write_encoder
from helpers.published import recipe_costs

from vlm_agent.datasets.sources import aitz
from vlm_agent.episodes import Action, Episode, Screen, Step
from vlm_agent.recipe.run import read_recipe
from vlm_agent.sentences import Sentence, image_sizes
from vlm_agent.sentences.messages import conversation
from vlm_agent.simulator.demonstrations import simulate_episode
from vlm_agent.training.data.data_module import DataModule
from vlm_agent.training.data.shard_data import data_module_of

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/data/sentences/recipe_hashes.json"
RECIPES = sorted(
    path
    for path in [*(ROOT / "recipes").glob("*.yaml"), *(ROOT / "recipes/comparison").glob("*.yaml")]
    if read_recipe(path).reinforcement is None  # whose sentences are known only during the run
)
LONGEST = 60_000
WHOLE = {"data.past_screens": "all"}
D_POT = {"data.past_screens": 0, "data.notes": FORMS["d_pot"]}
COAT = {"data.notes": ALL}
NAMED = {"action_language": {"name": "named", "name_swipe_targets": True}}
TRAJECTORIES = ("forkme", "llama_vit_tiny", "llama2_7b_html")
VARIANTS: dict[str, dict] = {
    "windows": {"data.max_tokens": 700},
    "windows of named": NAMED | {"data.max_tokens": 700},
    "coat": COAT,
    "coat in windows": COAT | NAMED | {"data.max_tokens": 900},
    "shuffled results": COAT | {"data.control": "shuffled_results"},
    "grey": {"data.control": "grey_screens"},
    "no history": COAT | {"data.control": "no_history"},
    "past": {"data.past_screens": 2, "data.history": 1},
    "past of element_index": {"data.past_screens": 1, "action_language": {"name": "element_index"}},
    "past of named": NAMED | {"data.past_screens": 2},
    "d_pot": D_POT,
    "static plan": {"data.past_screens": 1, "data.notes": FORMS["static, step"]},
    "read plans": {"data.past_screens": 1, "data.notes": FORMS["given"] | ALL},
    "learned step": {"data.notes": FORMS["learned step"]},
    "references": {"data.past_screens": 0, "data.references": {"encoder": "ENCODER"}},
    "auto_ui": {"action_language": {"name": "auto_ui"}},
    "coat language": {"action_language": {"name": "coat"}},
    "elements": {"data.sentences": "elements", "training.batch_tokens": None, "training.batch_size": 2},
}
CHAINS: dict[str, dict] = {
    "elements": {"data.elements": True},
    "short sources": {"data.max_source_tokens": 160},
    "short sources with elements": COAT | {"data.elements": True, "data.max_source_tokens": 400},
    "short targets": {"data.max_target_tokens": 100},
    "coat": COAT | {"data.max_target_tokens": 400},
    "no history": COAT | {"data.control": "no_history", "data.max_target_tokens": 400},
    "shuffled results": COAT | {"data.control": "shuffled_results", "data.max_target_tokens": 400},
    "no plan": {"data.history": 0, "data.future": 0, "data.past_screens": 2},
    "element_index": {"action_language": {"name": "element_index"}},
    "named": NAMED,
}


class Features:
    """Stored features of one value, so that a sentence with screens needs no extractor."""

    def steps(self, shards, index: int) -> list[np.ndarray]:
        return [np.zeros((4, 8), np.float16)] * len(shards.screen_sizes[index])


def episodes(shared: Path) -> Iterator[Episode]:
    for number, one in enumerate(read_episodes(shared / "data/aitw_tfrecord/google_apps-00000-of-00001")):
        assert isinstance(one, Episode)
        yield replace(one, id=f"aitw {number}")
    (path,) = (shared / "data/aitz_episode").glob("*.json")
    read = list(aitz.read_steps(path))
    yield Episode("aitz", "google_apps", read[0].goal, tuple(entry.step for entry in read))
    for seed in range(4):
        yield simulate_episode(seed, "train", thoughts=bool(seed % 2))[0]
    yield made_episode()
    yield tiny.episode(3)
    yield scrolling_episode()


def scrolling_episode() -> Episode:
    """Swipes before taps on elements that they bring into view."""
    swipe, home = Action.swipe((0.85, 0.55), (0.15, 0.55)), Screen(np.zeros((64, 32, 3), np.uint8), ())
    shown = replace(home, elements=tiny.ELEMENTS)
    taps = [Action.tap(0.1, 0.2), Action.tap(0.6, 0.5), Action.tap(0.8, 0.9)]
    steps = []
    for tap in (*taps, *taps):
        steps += [(home, swipe), (home, swipe), (shown, tap)]
    made = (Step(screen.pixels, action, screen.elements or ()) for screen, action in steps)
    return Episode("scrolls", "general", "open <|im_end|> </s> settings", (*made, Step(home.pixels, Action.complete())))


def write_data(folder: Path, shared: Path) -> Path:
    return tiny.write_shards(folder, [with_plans(with_texts(one)) for one in episodes(shared)])


def cases() -> dict[str, tuple[str, dict]]:
    found = {str(path.relative_to(ROOT / "recipes").with_suffix("")): (path.stem, {}) for path in RECIPES}
    for name in TRAJECTORIES:
        whole = WHOLE if name in recipe_costs.ON_HTML else {}
        found |= {f"{name}: {about}": (name, whole | keys) for about, keys in VARIANTS.items()}
    del found["llama2_7b_html: elements"]  # a text model sees no screen
    return found | {f"auto_ui_base: {about}": ("auto_ui_base", keys) for about, keys in CHAINS.items()}


def module_of(name: str, keys: dict, folder: Path) -> DataModule:
    (path,) = (path for path in RECIPES if path.stem == name)
    content = read_recipe(path)
    sources = content.model.sources.values()
    overrides = recipe_costs.stand_ins(content, folder) if any(source.checkpoint for source in sources) else {}
    if content.model.base is not None:
        overrides["model.base"] = "phone_vlm_tiny"  # the shipped end of all runs that continue one another
    if content.model.language_model is not None and content.model.language_model.gguf_file is not None:
        overrides["model.language_model.gguf_file"] = None
    if content.data.chats is not None:
        overrides["data.chats"] = str(folder / "chats")
    else:
        overrides |= {"data.shards": str(folder / "data"), "data.mixture": {}, "data.limit": None}
        overrides |= {"data.max_tokens": LONGEST} if content.data.sentences == "trajectory" else {}
        overrides |= {} if content.training.batch_tokens is None else {"training.batch_tokens": LONGEST}
        overrides["training.validation"] = None
    overrides |= keys
    if content.model.is_text and "data.max_tokens" in keys:
        overrides["data.max_tokens"] = 4 * keys["data.max_tokens"]  # a screen as text is longer
    if (references := overrides.get("data.references")) is not None:
        overrides["data.references"] = references | {"encoder": str(folder / "encoder")}
    if overrides.get("data.sentences") == "elements":
        overrides["data.max_tokens"] = None
    module = data_module_of(read_recipe(path, {key: json.dumps(value) for key, value in overrides.items()}))
    module.config.max_position_embeddings = 10**9
    if hasattr(module.config, "text_config"):
        module.config.text_config.max_position_embeddings = 10**9
    if module.recipe.data.sentences == "chain_of_actions":
        module.kind.__dict__["features"] = Features()
    return module


def sentences_of(module: DataModule) -> Iterator[Sentence]:
    write = module.writer()
    for number, item in enumerate(module.order.items):
        yield write(item, random.Random(f"golden {number}"))


def digest(module: DataModule) -> dict[str, str | int]:
    whole, count, tokens = hashlib.sha256(), 0, 0
    for one in sentences_of(module):
        shapes = [screen.shape for screen in one.screens]
        labels = [each.tolist() for each in one.element_labels]
        content = (one.input_ids, one.labels, one.kinds, one.roles, one.weights, shapes, labels)
        whole.update(repr(content).encode())
        count, tokens = count + 1, tokens + len(one)
    asked = hashlib.sha256()
    for one in asked_of(module):
        asked.update(repr(one).encode())
    found = {"sentences": whole, "prompts": asked}
    return {"count": count, "tokens": tokens} | {name: each.hexdigest()[:32] for name, each in found.items()}


def asked_of(module: DataModule) -> Iterator[tuple]:
    """What agents of the run read at each step of three episodes."""
    if module.recipe.data.shards is None:
        return
    for episode in [module.shards[number] for number in (0, -3, -1)]:
        if module.recipe.data.sentences == "chain_of_actions":
            sentences = module.kind.sentences
            for number in range(len(episode)):
                yield (
                    sentences.encode(sentences.source_of(episode, number).segments, ()).input_ids,
                    target_text(sentences, episode.steps[number:]),
                )
            continue
        sentences = module.sentences
        yield from ((one.input_ids, one.labels, one.kinds) for one in sentences.sentences_of(episode))
        for number in range(1, len(episode) + 1):
            part = replace(episode, steps=episode.steps[:number])
            yield sentences.prompt(part).input_ids, conversation(sentences, part, lambda pixels: {"size": pixels.shape})


def write_chats(folder: Path) -> None:
    chats = [
        {"messages": [{"role": "system", "content": "you act"}, {"role": "user", "content": f"goal {number} <p>x</p>"},
                      {"role": "assistant", "content": f'{{"action_type": "click", "idx": {number}}}'}]}
        for number in range(5)
    ]  # fmt: skip
    folder.mkdir()
    (folder / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))


def prepare(folder: Path, shared: Path) -> Path:
    write_data(folder / "data", shared)
    write_chats(folder / "chats")
    write_encoder(folder / "encoder")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory, shared) -> Path:
    return prepare(tmp_path_factory.mktemp("golden"), shared)


@cache
def blank(size: tuple[int, int]) -> np.ndarray:
    return np.zeros((3, *size), np.uint8)


@pytest.fixture(autouse=True)
def screens_of_the_prepared_size(monkeypatch):
    """The hashes hold shapes of screens, and resampling is two thirds of the work."""
    monkeypatch.setattr(image_sizes, "prepare_screen", lambda screenshot, size, *_: blank(size))


@pytest.mark.parametrize("case", cases())
def test_the_sentences_of_a_recipe_have_the_recorded_ids_labels_and_weights(case, folder):
    assert digest(module_of(*cases()[case], folder)) == json.loads(GOLDEN.read_text())[case]


def write_again() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = prepare(Path(temporary), ROOT.parent / "shared")
        found = {}
        for name, case in cases().items():
            print(name, file=sys.stderr)
            found[name] = digest(module_of(*case, folder))
    GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_again()
