"""A pretraining run becomes a folder to give away: weights, tokenizer, recipe, curves and a card of what was measured.

    python tests/benchmarks/phone_vlm.py --run RUN --screens 400 --real FOLDER --draw answers.png --draw-real real.png \
        > figures.txt
    python tests/benchmarks/base_card.py --run RUN --output DIR --figures figures.txt \
        [--course EARLIER.txt …] [--earlier TEXT … --earlier-minutes N] --picture answers.png --real-picture real.png \
        --hardware "2 CPU cores with AVX2"

`--figures` is what `phone_vlm.py` printed of the finished run; `--course` the same of earlier parts and checkpoints for
the table of what was learned when: a file's name is what its column is called. Prints the sha256 of the weights.
"""

import argparse
import hashlib
import json
import shutil
from pathlib import Path

from PIL import Image

from vlm_agent.models.build import load
from vlm_agent.models.trained import CHECKPOINTS, MODEL_FOLDER, RECIPE_FILE, TOKENIZER_FOLDER
from vlm_agent.training.run_folder import FINISHED

WEIGHTS = "model.safetensors"
CARD = Path(__file__).with_suffix(".md")
CURVES = {
    "answers": ("action_loss", "#1a5fb4"),
    "words under visual tokens": ("element_loss", "#26a269"),
    "answers, held out": ("eval_loss", "#c64600"),
}
"""What a curve is called: (its key in the log, its colour)."""

WIDTH, HEIGHT, MARGIN = 720, 300, 44


def main() -> None:
    options = parse()
    base, figures = options.output, last_line(options.figures)
    record = json.loads((options.run / FINISHED).read_text(encoding="utf-8"))
    copy_model(options.run, base)
    picture(options.picture, base / "answers.webp")
    picture(options.real_picture, base / "real_screens.webp")
    (base / "curves.svg").write_text(curves(history(options.run)), encoding="utf-8")
    digest = hashlib.sha256((base / MODEL_FOLDER / WEIGHTS).read_bytes()).hexdigest()
    minutes = record["figures"]["seconds_since_last_start"] / 60
    facts = {
        "sha256": digest,
        "commit": record["commit"],
        "megabytes": f"{(base / MODEL_FOLDER / WEIGHTS).stat().st_size / 1e6:.1f}",
        "parameters": f"{parameters(base):,}",
        "steps": f"{record['figures']['steps']:,}",
        "minutes": f"{minutes:.0f}",
        "together": f"{options.earlier_minutes + minutes:.0f}",
        "torch": record["versions"]["torch"],
        "drawn": table({"": figures["drawn"]}, with_interval=True),
        "real": table({"": figures["real"]}, with_interval=True),
        "course": table({path.stem.replace("_", " "): last_line(path)["drawn"] for path in options.course}),
        "screens": str(figures["screens"]),
        "hardware": options.hardware,
        "earlier": "\n".join(f"| part {number} | {told} |" for number, told in enumerate(options.earlier, start=1)),
    }
    card = CARD.read_text(encoding="utf-8")
    for name, value in facts.items():
        card = card.replace("{{" + name + "}}", value)
    (base / "README.md").write_text(card, encoding="utf-8")
    print(f"{base}: sha256 {digest}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="a finished run")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="replaced if it is there")
    parser.add_argument("--figures", type=Path, required=True, metavar="TXT")
    parser.add_argument("--course", type=Path, nargs="*", default=[], metavar="TXT")
    parser.add_argument("--picture", type=Path, required=True, metavar="PNG")
    parser.add_argument("--hardware", required=True, metavar="TEXT", help="what the run took its minutes on")
    parser.add_argument("--earlier", nargs="*", default=[], metavar="TEXT", help="earlier parts: recipe, commit, cost")
    parser.add_argument("--earlier-minutes", type=int, default=0, metavar="N", help="of all earlier parts together")
    parser.add_argument("--real-picture", type=Path, required=True, metavar="PNG")
    return parser.parse_args()


def copy_model(run: Path, base: Path) -> None:
    if base.exists():
        shutil.rmtree(base)
    (base / MODEL_FOLDER).mkdir(parents=True)
    for name in (WEIGHTS, "config.json"):
        shutil.copyfile(run / MODEL_FOLDER / name, base / MODEL_FOLDER / name)
    shutil.copytree(run / TOKENIZER_FOLDER, base / TOKENIZER_FOLDER)
    shutil.copyfile(run / RECIPE_FILE, base / RECIPE_FILE)


def picture(source: Path, target: Path) -> None:
    Image.open(source).convert("RGB").save(target, quality=80, method=6)


def parameters(base: Path) -> int:
    return sum(parameter.numel() for parameter in load(base)[0].parameters())


def history(run: Path) -> list[dict]:
    newest = max((run / CHECKPOINTS).glob("checkpoint-*[0-9]"), key=lambda path: int(path.name.rpartition("-")[2]))
    return json.loads((newest / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]


def last_line(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8").strip().splitlines()[-1])


def table(columns: dict[str, dict], with_interval: bool = False) -> str:
    """Markdown: a row a task, a column a model by its name; percent right."""
    if not columns:
        return ""
    first = next(iter(columns.values()))
    names = [f" {name} |" if name else " right, % |" for name in columns]
    lines = ["| task |" + (" questions |" if with_interval else "") + "".join(names)]
    lines[0] += " 95 % interval |" if with_interval else ""
    lines.append("|---|" + "---:|" * (lines[0].count("|") - 2))
    for task in first:
        cells = [f"{told[task]['percent']:.1f}" if task in told else "" for told in columns.values()]
        if with_interval:
            low, high = first[task]["interval"]
            cells = [str(first[task]["questions"]), *cells, f"{low:.1f} – {high:.1f}"]
        lines.append(f"| {task} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def curves(log: list[dict]) -> str:
    """An SVG of the losses by step; both axes from 0."""
    last = max(line["step"] for line in log)
    highest = 6.0  # the first steps are higher, and say nothing
    x = lambda step: MARGIN + step / last * (WIDTH - 2 * MARGIN)  # noqa: E731
    y = lambda loss: HEIGHT - MARGIN - min(loss, highest) / highest * (HEIGHT - 2 * MARGIN)  # noqa: E731
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">']
    parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    for loss in range(int(highest) + 1):
        parts.append(f'<path d="M{MARGIN} {y(loss):.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(text(MARGIN - 8, y(loss) + 4, str(loss), "end"))
    parts += [text(x(step), HEIGHT - MARGIN + 18, str(step), "middle") for step in range(0, last + 1, 400)]
    parts.append(text(WIDTH / 2, HEIGHT - 6, "step", "middle"))
    for number, (name, (key, colour)) in enumerate(CURVES.items()):
        points = [(line["step"], line[key]) for line in log if key in line]
        if not points:  # a run without validation
            continue
        path = "L".join(f"{x(step):.1f} {y(loss):.1f}" for step, loss in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(text(WIDTH - MARGIN, MARGIN + 18 * number, name, "end", colour))
    return "\n".join([*parts, "</svg>", ""])


def text(x: float, y: float, said: str, anchor: str, colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="{anchor}" fill="{colour}">{said}</text>'


if __name__ == "__main__":
    main()
