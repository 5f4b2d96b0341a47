"""Accuracy of a pretrained phone model by task, on held-out drawn screens and on real screens without fine-tuning.

    python -m studies.shipped_base.phone_vlm --run runs/phone_vlm_tiny [--screens 400] [--seed 0] [--real FOLDER]
        [--draw answers.png] [--draw-real real.png]

`--real` is a folder of pairs NAME.jpg and NAME.json whose elements have `text` and `bounds_ltrb` (fractions left, top,
right, bottom), and optionally `checkable` and `checked`. `--draw` and `--draw-real` draw answers that are taps on
held-out screens, drawn and real: green if correct, red if wrong. The last line of output is JSON.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from helpers.screens.exam import accuracy_by_task, answer_questions, held_out_questions, questions_about, walk_accuracy
from rich.console import Console
from rich.table import Table

from shipped_weights.phone_vlm_tiny.drawn.screens import DrawnScreen
from shipped_weights.phone_vlm_tiny.lessons import Lessons
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.drawing.actions import draw_action
from vlm_agent.episodes import Action, Step, UiElement

RIGHT, WRONG = (20, 140, 60), (205, 40, 40)
DRAWN, HEIGHT = 12, 640


def main() -> None:
    options = parse()
    agent = VlmAgent.from_run(options.run)
    lessons = Lessons(agent.sentences)
    start = time.monotonic()
    answers = list(answer_questions(agent, held_out_questions(lessons, options.screens, options.seed)))
    figures = {
        "run": str(options.run),
        "screens": options.screens,
        "seed": options.seed,
        "drawn": accuracy_by_task(answers),
    }
    figures["drawn"] |= walk_accuracy(agent, options.screens // 3, options.seed)
    show("Drawn screens, held out", figures["drawn"])
    if options.real is not None:
        rng = random.Random(0)
        real = [real_screen(path) for path in sorted(options.real.glob("*.json"))]
        if not real:
            raise SystemExit(f"{options.real} contains no NAME.json")
        questions = (question for screen in real for question in questions_about(lessons, screen, rng))
        of_real = list(answer_questions(agent, questions))
        figures["real"] = accuracy_by_task(of_real)
        show("Real screens", figures["real"])
        if options.draw_real is not None:
            draw(of_real, options.draw_real)
    if options.draw is not None:
        draw(answers, options.draw)
    figures["seconds"] = round(time.monotonic() - start, 1)
    print(json.dumps(figures))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="a finished run")
    parser.add_argument("--screens", type=int, default=400, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--real", type=Path, default=None, metavar="FOLDER")
    parser.add_argument("--draw", type=Path, default=None, metavar="PNG")
    parser.add_argument("--draw-real", type=Path, default=None, metavar="PNG")
    options = parser.parse_args()
    if options.draw_real is not None and options.real is None:
        parser.error("--draw-real draws answers about --real; pass both")
    return options


def real_screen(path: Path) -> DrawnScreen:
    content = json.loads(path.read_text(encoding="utf-8"))
    elements, switches = [], {}
    for element in content["elements"]:
        left, top, right, bottom = element["bounds_ltrb"]
        text = " ".join((element["text"] or "").split())
        if text:
            elements.append(UiElement((top, left, bottom - top, right - left), text, "TEXT"))
            if element.get("checkable"):
                switches[text] = element["checked"]
    screenshot = np.asarray(Image.open(path.with_suffix(".jpg")).convert("RGB"))
    return DrawnScreen(Step(screenshot, Action.complete(), tuple(elements)), switches)


def show(title: str, figures: dict[str, dict]) -> None:
    table = Table(title=title, box=None)
    for column in ("task", "questions", "right, %", "95 %"):
        table.add_column(column, justify="left" if column == "task" else "right")
    for task, row in figures.items():
        low, high = row["interval"]
        table.add_row(task, str(row["questions"]), f"{row['percent']:.1f}", f"{low:.1f} – {high:.1f}")
    Console().print(table)


def draw(answers, output: Path) -> None:
    """The first `DRAWN` screens with a question for a tap, with one answer and its question on each."""
    chosen = {id(answer.question.screen): answer for answer in answers if answer.question.element is not None}
    if not chosen:
        raise SystemExit("no question asks for a tap, so there is nothing to draw")
    cells = []
    for answer in list(chosen.values())[:DRAWN]:
        picture = Image.fromarray(answer.question.screen.step.screenshot)
        picture = picture.resize((round(picture.width * HEIGHT / picture.height), HEIGHT), Image.Resampling.LANCZOS)
        if answer.action is not None and answer.action.is_tap:
            colour = RIGHT if answer.correct else WRONG
            picture = draw_action(picture, answer.action, colour, answer.question.element.name)
        cells.append(picture)
    columns = 6
    wide = max(cell.width for cell in cells)
    sheet = Image.new("RGB", ((wide + 8) * columns, (HEIGHT + 8) * -(-len(cells) // columns)), (255, 255, 255))
    for index, cell in enumerate(cells):
        sheet.paste(cell, ((wide + 8) * (index % columns), (HEIGHT + 8) * (index // columns)))
    sheet.save(output)


if __name__ == "__main__":
    main()
