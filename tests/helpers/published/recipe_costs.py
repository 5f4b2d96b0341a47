"""The paragraph Cost in the headers of recipes: dry runs on synthetic episodes, as many and as long as the real ones.

    python tests/helpers/published/recipe_costs.py            prints the lines of every recipe for a real model
    python tests/helpers/published/recipe_costs.py --write    and puts them into the headers

AITW has these episodes and screens (Rawles et al. 2023), about 80 % of them in train; how lengths spread around each
subset's mean is assumed. A two-hundredth of them is made, of google_apps only the tenth that the mixture keeps, and
what grows with the data is multiplied. Of AitZ a tenth of the train split is made, with texts as long as those of its
published episode by T5's tokenizer. AndroidControl has 13,603 training episodes (Li et al. 2024); a tenth is made, as
long as those of its test split with their ends. Text models get the same episodes with HTML as long as that of the real
episode of AITW: 312 tokens a screen. Checkpoints are the published configurations (`published_configs`), with
stand-ins for the tokenizers: words whole, numbers in digits. With Qwen's own, Qwen2.5-VL-7B's lines were the same
but for 1 % more tokens to learn.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from helpers.data import aitz_counts
from helpers.published.published_configs import write_checkpoint

from vlm_agent.action_languages.binned import PHRASES
from vlm_agent.datasets.selection import in_mixture
from vlm_agent.datasets.shards.images import EncodedScreen
from vlm_agent.datasets.shards.schema import episode_row, step_struct
from vlm_agent.datasets.shards.writer import ShardWriter, write_manifest
from vlm_agent.episodes import Action, Step
from vlm_agent.files.console import quiet_libraries
from vlm_agent.models.cost import Flops
from vlm_agent.recipe.model import SOURCES
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.sentences.html import SCREEN_PHRASES
from vlm_agent.sentences.notes import UsedNotes
from vlm_agent.sentences.steps import PHRASES as STEP_PHRASES
from vlm_agent.training.data.sentence_kinds.chain_of_actions import ChainPass
from vlm_agent.training.data.sentence_kinds.trajectory import TrajectoryPass
from vlm_agent.training.data.shard_data import ShardDataModule
from vlm_agent.training.dry_run.hardware import find_gpu
from vlm_agent.training.dry_run.memory import USABLE
from vlm_agent.training.dry_run.report import DryRun, Target, dry_run

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
AITW = {
    "general": (9_476, 85_413),
    "google_apps": (625_542, 4_903_601),
    "install": (25_760, 250_058),
    "single": (26_303, 85_668),
    "web_shopping": (28_061, 365_253),
}
TRAIN, MADE, GOOGLE_APPS = 0.8, 0.005, 0.1
AITZ = {subset: counts for (split, subset), counts in aitz_counts.PUBLISHED.items() if split == "train"}
AITZ_MADE = 0.1
AITZ_TOKENS = {"screen": (100, 160), "think": (38, 90), "action": (3, 18), "result": (30, 80)}
"""The fewest and most tokens of a text of AitZ, assumed. Its published episode has 115–143, 37–72, 2–17 and 36–62 by
T5's tokenizer; the paper's figure 3 has 80–120, 30–70 and 20–80 words for SD, AT and AR."""
ANDROIDCONTROL = {"android_control": (13_603, 13_603 * (8_444 + 1_543) // 1_543)}
"""The train split; its mean length is that of the test split."""
ANDROIDCONTROL_TOKENS = {"step": (3, 16)}
GIGABYTES = (24, 40, 80, 141)
EIGHT = (("H100", 8), ("A100-80", 8))
MACHINES = {
    "qwen2_5_vl_7b_lora": EIGHT,
    "qwen3_vl_8b_lora": EIGHT,
    "qwen_vl_7b_lora": EIGHT,
    "llama_vit_llama2_7b": EIGHT,
    "llama_vit_llama2_7b_qlora": (("4090", 1), ("A100-40", 1)),
    "forkme": (("4090", 1), ("A100-40", 1)),
    "auto_ui_small": EIGHT,
    "auto_ui_base": EIGHT,
    "auto_ui_large": EIGHT,
    "auto_ui_base_aitz": EIGHT,
    "qwen2_5_vl_7b_lora_aitz": EIGHT,
    "qwen2_5_vl_7b_lora_androidcontrol": EIGHT,
    "llama2_7b_html": EIGHT,
    "llava_7b_html": EIGHT,
}
"""Where each recipe is to run: the first is what its header's dry run asks about."""

ON_AITZ = ("auto_ui_base_aitz", "qwen2_5_vl_7b_lora_aitz")
"""The recipes whose data are AitZ."""

ON_ANDROIDCONTROL = ("qwen2_5_vl_7b_lora_androidcontrol",)

ON_HTML = ("llama2_7b_html", "llava_7b_html")
"""The recipes whose model reads or numbers elements. D-PoT's have a part of one subset."""

_ELEMENTS = (8, 28)
"""The fewest and most elements of a screen, with `_ELEMENT_WORDS` words each."""
_ELEMENT_WORDS = 1
_SIZES = ((1440, 720), (2280, 1080), (2340, 1080), (2400, 1080))
_AITZ_SIZES = ((600, 270),)
_ANDROIDCONTROL_SIZES = ((2400, 1080), (2400, 1080), (2400, 1080), (3120, 1440))
_GOALS = (
    "open the settings and turn off automatic brightness",
    "what is the weather in the town where the next game is played",
    "add the cheapest wireless mouse with good reviews to the cart on the first shop",
    "install the app of the bank if it is not there already and log in",
)
_TYPED = ("weather tomorrow", "wireless mouse", "bank")
_SYSTEM = "system\nYou operate a phone by its screen, one action at a time."
_FRAME = ("Goal: ", "\nAction: ", _SYSTEM, "user", "assistant")
_WORD = "screen"
TEXTS = [
    _WORD,
    f" {_WORD}",
    *_GOALS,
    *(f" {goal}" for goal in _GOALS),
    *_TYPED,
    *PHRASES,
    *_FRAME,
    *(f" {text}" for text in _TYPED),
]
_COST = re.compile(r"^# Cost, estimated.*?\n(?=\n)", re.MULTILINE | re.DOTALL)


def shards_of(name: str, folder: Path) -> Path:
    """The episodes for a recipe's dry run, below `folder`; made where they are not yet."""
    kind = "aitz" if name in ON_AITZ else "html" if name in ON_HTML else "shards"
    kind = "androidcontrol" if name in ON_ANDROIDCONTROL else kind
    if not (there := folder / kind).exists():
        writers = {"aitz": write_aitz, "html": write_html, "shards": write_shards}
        (writers | {"androidcontrol": write_androidcontrol})[kind](there)
    return there


def write_shards(folder: Path, share: float = MADE * TRAIN) -> Path:
    """A share of AITW in episodes without pixels; nothing that a dry run reads is left out."""
    return _write(folder, _rows([EncodedScreen(b"", *size) for size in _SIZES], share))


def write_html(folder: Path, share: float = MADE * TRAIN) -> Path:
    """Writes as `write_shards`, with elements."""
    rng = np.random.default_rng(0)
    rows = _rows([EncodedScreen(b"", *size) for size in _SIZES], share)
    return _write(folder, ({**row, "steps": [_with_elements(step, rng) for step in row["steps"]]} for row in rows))


def _with_elements(step: dict, rng: np.random.Generator) -> dict:
    element = {"box": [0.0, 0.0, 0.1, 0.1], "text": " ".join([_WORD] * _ELEMENT_WORDS), "type": "TEXT"}
    return step | {"elements": [element] * int(rng.integers(*_ELEMENTS))}


def write_aitz(folder: Path, share: float = AITZ_MADE) -> Path:
    """A share of AitZ's train split in episodes with texts, without pixels."""
    return _write(folder, _noted_rows(AITZ, AITZ_TOKENS, _AITZ_SIZES, share))


def write_androidcontrol(folder: Path, share: float = AITZ_MADE) -> Path:
    """A share of AndroidControl's train split in episodes with step instructions, without pixels."""
    return _write(folder, _noted_rows(ANDROIDCONTROL, ANDROIDCONTROL_TOKENS, _ANDROIDCONTROL_SIZES, share))


def _write(folder: Path, episodes: Iterator[dict]) -> Path:
    with ShardWriter(folder / "made.parquet") as shard:
        rows = list(episodes)
        for row in rows:
            shard.write_row(row)
    write_manifest(folder, {"files": [{"shard": "made.parquet", "subset": "all", "episodes_written": len(rows)}]})
    return folder


def _rows(screens: list[EncodedScreen], share: float) -> Iterator[dict]:
    rng = np.random.default_rng(0)
    actions = [_action(rng) for _ in range(500)]  # few different ones, because each is tokenised
    for subset, (episodes, steps) in AITW.items():
        kept = GOOGLE_APPS if subset == "google_apps" else 1
        ids = (f"{subset}/{number}" for number in range(10**9))
        ids = (name for name in ids if in_mixture(name, subset, {"google_apps": GOOGLE_APPS}))
        for length in lengths(round(episodes * kept * share), steps / episodes, rng).tolist():
            screen = screens[rng.integers(len(screens))]
            done = [*(actions[number] for number in rng.integers(len(actions), size=length - 1)), Action.complete()]
            yield _row(
                next(ids), subset, _GOALS[rng.integers(len(_GOALS))], [Step(None, action) for action in done], screen
            )


def _noted_rows(counts: dict, texts: dict, sizes: tuple, share: float) -> Iterator[dict]:
    """`counts`: subset → episodes and screens. `texts`: note → its fewest and most tokens."""
    rng = np.random.default_rng(0)
    screens = [EncodedScreen(b"", *size) for size in sizes]
    steps = [Step(None, _action(rng), notes=_texts_of_a_step(rng, texts)) for _ in range(500)]
    for subset, (episodes, screens_in_all) in counts.items():
        for number, length in enumerate(lengths(round(episodes * share), screens_in_all / episodes, rng).tolist()):
            done = [steps[at] for at in rng.integers(len(steps), size=length)]
            done[-1] = replace(done[-1], action=Action.complete())
            screen = screens[rng.integers(len(screens))]
            yield _row(f"{subset}/{number}", subset, _GOALS[rng.integers(len(_GOALS))], done, screen)


def _row(name: str, subset: str, goal: str, steps: list[Step], screen: EncodedScreen) -> dict:
    structs = [step_struct(step, screen, "png", at) for at, step in enumerate(steps)]
    return episode_row(name, subset, "train", goal, "", 0, structs)


def _texts_of_a_step(rng: np.random.Generator, texts: dict) -> dict[str, str]:
    """Texts of one word repeated, which the stand-ins for tokenizers have whole."""
    return {part: " ".join([_WORD] * rng.integers(*ends)) for part, ends in texts.items()}


def lengths(count: int, mean: float, rng: np.random.Generator) -> np.ndarray:
    """int64 (count,), 1 and more: a negative binomial distribution's quantiles, so that few show its mean too."""
    drawn = np.sort(1 + rng.negative_binomial(3, 3 / (3 + mean - 1), 100_000))
    return drawn[((np.arange(count) + 0.5) / count * len(drawn)).astype(np.int64)]


def _action(rng: np.random.Generator) -> Action:
    y, x, kind = rng.random(3)
    if kind < 0.7:
        return Action.tap(y, x)
    if kind < 0.85:
        return Action.swipe((0.8, x), (0.3, x))
    return Action.press("back") if kind < 0.9 else Action.type_text(_TYPED[rng.integers(len(_TYPED))])


def stand_ins(recipe: Recipe, folder: Path) -> dict[str, str]:
    """Overrides that name, in place of the recipe's checkpoints, folders with their configurations; made below
    `folder` where they are not yet."""
    sources = {part: getattr(recipe.model, part) for part in SOURCES}
    overrides = {}
    for part, source in sources.items():
        if source is not None:
            there = folder / (source.checkpoint.replace("/", "--") + ("-html" if _reads_html(recipe) else ""))
            overrides[f"model.{part}.checkpoint"] = str(
                there if there.exists() else write_checkpoint(there, source.checkpoint, _texts(recipe))
            )
    return overrides


def _reads_html(recipe: Recipe) -> bool:
    return recipe.model.is_text or UsedNotes(recipe.data.notes).reads_elements


def _texts(recipe: Recipe) -> list[str]:
    """What a tokenizer should have whole words of. With those of Auto-UI a tap has 55 tokens; T5's own has 54."""
    if _reads_html(recipe):
        return [*TEXTS, *SCREEN_PHRASES]
    if recipe.data.sentences != "chain_of_actions":
        return TEXTS
    language = recipe.action_language.build()
    actions = (Action.tap(0.25, 0.75), Action.swipe((0.8, 0.5), (0.3, 0.5)), Action.press("back"), Action.complete())
    encoded = [language.encode(action) for action in (*actions, Action.type_text("bank"))]
    return [*TEXTS, *STEP_PHRASES, *(f" {text}" for text in (*STEP_PHRASES, *encoded)), *encoded]


def dry_runs_of(name: str, folder: Path) -> list[DryRun]:
    """The recipe on each of its machines. `folder`: for episodes and checkpoints, which are made once."""
    path = RECIPES / f"{name}.yaml"
    overrides = stand_ins(read_recipe(path), folder) | {"data.shards": str(shards_of(name, folder))}
    data = ShardDataModule(read_recipe(path, overrides))
    return [dry_run(data, Target(find_gpu(gpu), gpus)) for gpu, gpus in MACHINES[name]]


def cost_lines(name: str, dries: list[DryRun]) -> str:
    """The paragraph of a header, from `dry_runs_of`."""
    dry = dries[0]
    reads, step, target = dry.reads, dry.step, dry.target
    grown = _grown(name, dry)
    everything = grown * reads.episodes
    data = "AitZ's train split" if name in ON_AITZ else "AITW's train split, google_apps cut to 10 %"
    data = "a part of google_apps" if name in ON_HTML else data
    data = "AndroidControl's train split" if name in ON_ANDROIDCONTROL else data
    trained, frozen = (sum(part[kind] for part in dry.parameters.values()) / 1e6 for kind in ("trained", "frozen"))
    plural = "s" if target.gpus > 1 else ""
    lines = [
        "Cost, estimated by a dry run, not measured (assumptions: `python tests/helpers/published/recipe_costs.py`):",
        f"  parameters  {trained:,.1f} M trained, {frozen:,.1f} M frozen",
        f"  data        {data}: {_round(everything)} episodes of {reads.actions / reads.episodes:.1f} steps",
        f"  tokens      {_tokens(reads)}",
        f"  per epoch   {_short(reads.load.tokens * grown)} tokens in {_round(dry.rows_a_pass * grown)} rows",
        f"  per step    {step.rows} rows on {target.gpus} GPU{plural}: "
        f"{step.rows / dry.rows_a_pass * reads.episodes:.0f} episodes, {_round(step.tokens)} tokens, "
        f"{_round(step.supervised)} of them supervised",
        f"  FLOPs       {_short(step.work.model)} per step{_with_recomputation(step.work)}",
        f"  time        {_times(dries, grown)} of peak (assumed: docs/training.md);",
        f"              {_recomputed(dry, grown)}",
        f"  memory      GB per GPU, {_memory(dry)}",
        *_by_memory(dry),
    ]
    return "".join(f"# {line}\n" for line in lines)


def _tokens(reads: TrajectoryPass | ChainPass) -> str:
    if isinstance(reads, ChainPass):
        (source, longest), (target, longest_target) = reads.source_tokens, reads.target_tokens
        return f"{source:.0f} per source (at most {longest}), {target:.0f} per target (at most {longest_target})"
    fewest, mean, most = reads.screen_tokens
    windows = reads.over_budget / reads.episodes
    return (
        f"{mean:.0f}{'' if fewest == most else f' ({fewest} to {most})'} per screen, "
        f"{_round(reads.load.tokens / reads.episodes)} per episode; {100 * windows:.1f} % of episodes become windows"
    )


def _times(dries: list[DryRun], grown: float) -> str:
    return ", ".join(
        f"{_hours(dry.hours * grown)} on {dry.target.gpus} x {dry.target.gpu.name} at {100 * dry.target.gpu.mfu:.0f} %"
        for dry in dries
    )


def _with_recomputation(work: Flops) -> str:
    return f"; {_short(work.hardware)} with recomputation" if work.recomputed else ""


def _recomputed(dry: DryRun, grown: float) -> str:
    """What a header's percentages of peak are, and the length of the run."""
    work, epochs = dry.step.work, dry.recipe.training.epochs
    share = (
        f"{100 * work.recomputed / work.hardware:.0f} % of the FLOPs are recomputation"
        if work.recomputed
        else "no recomputation"
    )
    extra = "" if dry.recipe.model.quantisation is None else ", dequantisation not counted"
    return f"{share}{extra}; {_round(dry.steps * grown)} steps, {epochs:g} epoch{'' if epochs == 1 else 's'}"


def _grown(name: str, dry: DryRun) -> float:
    """How many times the episodes of the recipe's train split are those that were made."""
    if name in ON_HTML:
        return 1
    if name in ON_AITZ or name in ON_ANDROIDCONTROL:
        counts = AITZ if name in ON_AITZ else ANDROIDCONTROL
        return sum(episodes for episodes, _ in counts.values()) / dry.reads.episodes
    return sum(kept * episodes for episodes, kept in _kept()) * TRAIN / dry.reads.episodes


def _kept() -> list[tuple[int, float]]:
    return [(episodes, GOOGLE_APPS if name == "google_apps" else 1) for name, (episodes, _) in AITW.items()]


def _memory(dry: DryRun) -> str:
    """By sharding, with the layers that the recipe checkpoints under its own."""
    count, layers = dry.checkpointed[dry.sharding], len(dry.activations) - 1
    totals = {name: dry.total_bytes(name, count) / 1e9 for name in dry.memory}
    sizes = ", ".join(f"{name} {total:.0f}" for name, total in totals.items())
    if dry.target.gpus == 1:
        sizes = f"{totals['ddp']:.1f}"
    return f"{count} of {layers} layers checkpointed: {sizes}"


def _by_memory(dry: DryRun) -> list[str]:
    """The layers that `auto` checkpoints on GPUs of other sizes, and the longest row with all of them checkpointed."""
    if dry.recipe.training.gradient_checkpointing != "auto":
        return []
    held, tokens = dry.memory[dry.sharding].total, dry.recipe.training.batch_tokens
    layers, rows = [], []
    for gigabytes in GIGABYTES:
        usable = USABLE * gigabytes * 1e9 - held
        fit = [count for count, activations in enumerate(dry.activations) if activations <= usable]
        layers.append(f"{fit[0]} on {gigabytes} GB" if fit else f"{gigabytes} GB is too little")
        if fit and tokens:
            rows.append(f"{usable / dry.activations[-1] * tokens // 1000:,.0f},000 tokens on {gigabytes} GB")
    lines = [f"  by memory   layers checkpointed: {'; '.join(layers)}"]
    return [*lines, f"              longest row with all: {'; '.join(rows)}"] if rows else lines


def _round(number: float) -> str:
    """Three digits."""
    return f"{float(f'{number:.3g}'):,.0f}"


def _short(number: float) -> str:
    digits, power = f"{number:.1e}".split("e")
    return f"{digits}e{int(power)}"


def _hours(hours: float) -> str:
    if hours < 0.05:
        return f"{60 * hours:.1f} minutes"
    return f"{hours:,.0f} hours" if hours >= 10 else f"{hours:.1f} hours"


def with_cost(header: str, lines: str) -> str:
    """A recipe's text with these lines in the place of its Cost. Raises ValueError where it has none."""
    changed, times = _COST.subn(lambda _: lines, header)
    if times != 1:
        raise ValueError("a header needs one paragraph that begins with `# Cost, estimated`, its last")
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the lines into the recipes")
    options = parser.parse_args()
    quiet_libraries()
    with tempfile.TemporaryDirectory() as temporary:
        for name in MACHINES:
            lines = cost_lines(name, dry_runs_of(name, Path(temporary)))
            print(f"{name}\n{lines}", flush=True)
            if options.write:
                path = RECIPES / f"{name}.yaml"
                path.write_text(with_cost(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
