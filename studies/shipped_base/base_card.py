"""Publishes pretraining runs as a folder: weights, tokenizer, recipe, loss curves and a model card with results.

    python -m studies.shipped_base.phone_vlm --run PART_3 --screens 400 --real FOLDER --draw answers.png \
        --draw-real real.png > part_3.txt          # the same for the other parts, without pictures
    python -m studies.shipped_base.base_card --runs PART_1 PART_2 PART_3 --figures part_1.txt part_2.txt part_3.txt \
        --output DIR --picture answers.png --real-picture real.png --hardware "2 CPU cores with AVX2" [--note TEXT]

Each run continues the one before it; the weights of the last one are published. One run is enough. `--figures`: the
output of `phone_vlm.py` for each run. Prints the sha256 of the weights.
"""

import argparse
import hashlib
import json
import shutil
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from PIL import Image

from vlm_agent.files import write_checked
from vlm_agent.models.build import load
from vlm_agent.models.run_layout import DIGESTS, MODEL_FOLDER, RECIPE_FILE, TOKENIZER_FOLDER, WEIGHTS, trained
from vlm_agent.recipe.run import Recipe, read_recipe
from vlm_agent.training.journal import PROGRESS, read_progress
from vlm_agent.training.run_folder.layout import FINISHED

CARD = Path(__file__).with_suffix(".md")
CURVES = {
    "answers": ("action_loss", "#1a5fb4"),
    "words under visual tokens": ("element_loss", "#26a269"),
    "answers, held out": ("eval_loss", "#c64600"),
}
"""Name of a curve → (key in the log, colour)."""

WIDTH, HEIGHT, MARGIN, TICK = 720, 300, 44, 1000


def main() -> None:
    options = parse()
    run, base = options.runs[-1], options.output
    parts = [Part.read(run) for run in options.runs]
    figures = [last_line(path) for path in options.figures]
    if "real" not in figures[-1]:
        raise SystemExit(f"{options.figures[-1]} has no real screens: run phone_vlm.py with --real FOLDER")
    copy_model(run, base)
    record = {"figures": {"steps": parts[-1].steps}, "commit": parts[-1].commit}
    write_checked(base / FINISHED, record | {DIGESTS: trained(base).digests}, indent=2)
    picture(options.picture, base / "answers.webp")
    picture(options.real_picture, base / "real_screens.webp")
    (base / "curves.svg").write_text(curves([part.log for part in parts]), encoding="utf-8")
    facts = {
        "sha256": parts[-1].digest,
        "megabytes": f"{(base / MODEL_FOLDER / WEIGHTS).stat().st_size / 1e6:.1f}",
        "parameters": f"{parameters(base):,}",
        "seeds": enumerated([str(part.recipe.seed) for part in parts]),
        "recipes": enumerated([f"`{part.file}`" for part in parts]),
        "parts": "\n".join(part.row(number) for number, part in enumerate(parts, start=1)),
        "minutes": f"{sum(part.seconds for part in parts) / 60:.0f}",
        "torch": parts[-1].torch,
        "drawn": table({"": figures[-1]["drawn"]}, with_interval=True),
        "real": table({"": figures[-1]["real"]}, with_interval=True),
        "course": table({f"part {number}": figure["drawn"] for number, figure in enumerate(figures, start=1)}),
        "screens": str(figures[-1]["screens"]),
        "run": parts[-1].recipe.output,
        "hardware": options.hardware,
        "note": f"| note | {options.note} |\n" if options.note else "",
    }
    card = CARD.read_text(encoding="utf-8")
    for name, value in facts.items():
        card = card.replace("{{" + name + "}}", value)
    (base / "README.md").write_text(card, encoding="utf-8")
    print(f"{base}: sha256 {parts[-1].digest}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, nargs="+", required=True, metavar="RUN", help="finished runs, in order")
    parser.add_argument(
        "--figures", type=Path, nargs="+", required=True, metavar="TXT", help="output of phone_vlm.py, one file per run"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="replaced if it exists")
    parser.add_argument("--picture", type=Path, required=True, metavar="PNG")
    parser.add_argument("--real-picture", type=Path, required=True, metavar="PNG")
    parser.add_argument("--hardware", required=True, metavar="TEXT", help="the hardware of the runs")
    parser.add_argument("--note", default="", metavar="TEXT", help="a remark about the runs for the card")
    options = parser.parse_args()
    if len(options.runs) != len(options.figures):
        parser.error(f"{len(options.runs)} runs and {len(options.figures)} files of figures; pass one file per run")
    return options


@dataclass(frozen=True)
class Part:
    """A finished run, as recorded in its folder."""

    recipe: Recipe
    file: str
    commit: str
    torch: str
    steps: int
    seconds: float
    lessons: str
    digest: str
    log: list[dict]

    @classmethod
    def read(cls, run: Path) -> "Part":
        record = json.loads((run / FINISHED).read_text(encoding="utf-8"))
        return cls(
            recipe=read_recipe(run / RECIPE_FILE),
            file=record["command"][record["command"].index("--config") + 1],
            commit=record["commit"],
            torch=record["versions"]["torch"],
            steps=record["figures"]["steps"],
            seconds=record["figures"]["seconds"],
            lessons=record["figures"]["reads"].partition(" on ")[0],
            digest=hashlib.sha256((run / MODEL_FOLDER / WEIGHTS).read_bytes()).hexdigest(),
            log=read_progress(run / PROGRESS),
        )

    def row(self, number: int) -> str:
        did = f"{self.lessons} in {self.steps:,} steps, {self.seconds / 60:.0f} minutes"
        return f"| part {number} | `{self.file}`: commit `{self.commit}`, {did}; weights `{self.digest}` |"


def enumerated(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def copy_model(run: Path, base: Path) -> None:
    if base.exists():
        shutil.rmtree(base)
    (base / MODEL_FOLDER).mkdir(parents=True)
    for name in (WEIGHTS, "config.json"):
        shutil.copyfile(run / MODEL_FOLDER / name, base / MODEL_FOLDER / name)
    shutil.copytree(run / TOKENIZER_FOLDER, base / TOKENIZER_FOLDER)
    recipe = (run / RECIPE_FILE).read_text(encoding="utf-8")
    if (below := read_recipe(run / RECIPE_FILE).model.base) is not None:  # no path of this machine
        recipe = recipe.replace(f"base: {below}\n", f"base: runs/{Path(below).name}\n")
    (base / RECIPE_FILE).write_text(recipe, encoding="utf-8")


def picture(source: Path, target: Path) -> None:
    Image.open(source).convert("RGB").save(target, quality=80, method=6)


def parameters(base: Path) -> int:
    return sum(parameter.numel() for parameter in load(base)[0].parameters())


def last_line(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8").strip().splitlines()[-1])


def table(columns: dict[str, dict], with_interval: bool = False) -> str:
    """A Markdown table of percent right: one row per task, one column per entry of `columns`."""
    if not columns:
        return ""
    first = next(iter(columns.values()))
    names = [f" {name} |" if name else " right, % |" for name in columns]
    lines = ["| task |" + (" questions |" if with_interval else "") + "".join(names)]
    lines[0] += " 95 % interval |" if with_interval else ""
    lines.append("|---|" + "---:|" * (lines[0].count("|") - 2))
    for task in first:
        cells = [f"{column[task]['percent']:.1f}" if task in column else "" for column in columns.values()]
        if with_interval:
            low, high = first[task]["interval"]
            cells = [str(first[task]["questions"]), *cells, f"{low:.1f} – {high:.1f}"]
        lines.append(f"| {task} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def curves(logs: list[list[dict]]) -> str:
    """An SVG of the losses by step, with the parts one after the other; both axes start at 0."""
    ends = list(accumulate((max(line["step"] for line in log) for log in logs), initial=0))
    highest = 6.0  # losses of the first steps are higher and not informative
    x = lambda step: MARGIN + step / ends[-1] * (WIDTH - 2 * MARGIN)  # noqa: E731
    y = lambda loss: HEIGHT - MARGIN - min(loss, highest) / highest * (HEIGHT - 2 * MARGIN)  # noqa: E731
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">']
    parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    for loss in range(int(highest) + 1):
        parts.append(f'<path d="M{MARGIN} {y(loss):.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(text(MARGIN - 8, y(loss) + 4, str(loss), "end"))
    for number, (begin, end) in enumerate(pairwise(ends), start=1):
        parts.append(f'<path d="M{x(end):.1f} {MARGIN}V{HEIGHT - MARGIN}" stroke="#bbb" stroke-dasharray="4 3"/>')
        parts.append(text(x((begin + end) / 2), MARGIN - 10, f"part {number}", "middle"))
    steps = range(0, ends[-1] + 1, TICK)
    parts += [text(x(step), HEIGHT - MARGIN + 18, f"{step:,}", "middle") for step in steps]
    parts.append(text(WIDTH / 2, HEIGHT - 6, "step", "middle"))
    for number, (name, (key, colour)) in enumerate(CURVES.items()):
        points = [
            [(x(begin + line["step"]), y(line[key])) for line in log if key in line]
            for begin, log in zip(ends[:-1], logs, strict=True)
        ]
        if not any(points):  # runs without validation
            continue
        parts += [polyline(of, colour) for of in points if of]
        parts.append(text(WIDTH - MARGIN - 8, MARGIN + 18 * (number + 1), name, "end", colour))
    return "\n".join([*parts, "</svg>", ""])


def polyline(points: list[tuple[float, float]], colour: str) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def text(x: float, y: float, label: str, anchor: str, colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="{anchor}" fill="{colour}">{label}</text>'


if __name__ == "__main__":
    main()
