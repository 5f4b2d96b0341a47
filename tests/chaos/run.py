"""Everything at once, disturbed at random: a served phone, a conversion, a training and an evaluation.

    python tests/chaos/run.py --minutes 60 --seed 0 --output runs/chaos

First the commands run undisturbed, on a few simulated episodes and with tiny models. Then they run side by side until
the time is over. Each writes into a new folder, is killed up to four times (SIGKILL or SIGTERM; the process, all its
processes, or one of its children; before or during its work), started again with the same command, and compared with
the undisturbed run: shards byte for byte, weights, steps, losses, answers and scores. Beside them the phone receives
random shell lines and packets from several clients at once and is killed now and then, and copies of records, shards
and predictions are damaged before they are read, which must end in an error, in quarantine, or in the same result.

At the end no log may have a traceback, and memory must be bounded. The script prints counts, memory over time and
violations, writes summary.json, and exits with status 1 if there are violations. What was wrong stays in OUTPUT/rounds
and OUTPUT/logs. The seed determines what is done, not when the processor gets to it. Two cores and 4 GiB are enough.
"""

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers import tiny

from chaos import phone, records
from chaos.commands import Scene, Victim, in_threads
from chaos.damage import Damage
from chaos.findings import MIB, Findings, Memory, tracebacks

EPISODES = 12
STEPS = 12
MARKER = ".chaos"

MORE_MEMORY = 256 * MIB
"""Allowed beside the peak of the undisturbed command."""

UNDISTURBED_INTERVAL = 0.05
"""Seconds between memory samples of undisturbed commands: a conversion ends after one second, so its peak is short."""


def main() -> int:
    options = _options()
    folder = _new_folder(options.output)
    scene = Scene(folder, options.seed, Findings(), Memory())
    victims = undisturbed(scene)
    readers = Damage(scene, folder / "data", folder / "convert", folder / "evaluate")
    print(f"undisturbed after {_seconds(victims)}; now {options.minutes:g} minutes of chaos", flush=True)
    scene.end = time.monotonic() + 60 * options.minutes
    works = (*victims, phone.Phone(scene), readers)
    for thread in in_threads(*(_guarded(scene, work) for work in works)):
        thread.join()
    check_memory(scene, victims)
    for text in tracebacks(folder):
        scene.findings.violation("traceback", text)
    return report(scene)


def undisturbed(scene: Scene) -> tuple[Victim, ...]:
    """The three commands, each with the record of an undisturbed run that the next one reads."""
    folder = scene.folder
    status, text = scene.run("simulate", ["simulate", "--output", "data", "--episodes", str(EPISODES)])
    if status != 0:
        raise SystemExit(text)
    recipe = tiny.recipe("convert", "train")
    recipe["training"] |= {"steps": STEPS, "save_steps": 3, "batch_size": 1}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    evaluate = ["evaluate", "--agent", "phone_vlm_tiny", "--shards", "convert", "--split", "train"]
    victims = (
        Victim(
            scene,
            "convert",
            ["convert", "--input", "data", "--output", "{output}", "--workers", "2"],
            records.of_conversion,
        ),
        Victim(scene, "train", ["train", "--config", "recipe.yaml", "--output", "{output}"], records.of_training),
        Victim(
            scene,
            "evaluate",
            [*evaluate, "--output", "{output}", "--agent.batch_tokens", "2048", "--controls", "grey_screens"],
            records.of_evaluation,
        ),
    )
    scene.memory.interval, interval = UNDISTURBED_INTERVAL, scene.memory.interval
    for victim in victims:
        victim.undisturbed()
    scene.memory.interval = interval
    return victims


def _guarded(scene: Scene, work: Victim | phone.Phone | Damage):
    """`rounds_until_the_end` of the work; its own exception is a violation, too."""

    def run() -> None:
        try:
            work.rounds_until_the_end()
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the other works continue, and the report has it)
            scene.findings.violation(type(work).__name__, f"ended early: {error!r}")

    return run


def check_memory(scene: Scene, victims: tuple[Victim, ...]) -> None:
    """Compares the peak of each command with its undisturbed one, and of the phone with its start."""
    limits = {victim.name: scene.memory.peak(f"{victim.name} undisturbed") + MORE_MEMORY for victim in victims}
    starts = scene.memory.samples.get(phone.NAME, [])
    if starts:
        limits[phone.NAME] = max(size for _, size in starts[:10]) + phone.GROWTH
    for name, limit in limits.items():
        if (peak := scene.memory.peak(name)) > limit:
            scene.findings.violation(name, f"used {peak // MIB} MiB, more than {limit // MIB} MiB")


def report(scene: Scene) -> int:
    """Prints the summary, writes it as JSON, and returns the exit status."""
    counts: dict[str, Counter] = {}
    for (who, what), number in sorted(scene.findings.counts.items()):
        counts.setdefault(who, Counter())[what] = number
    for who, numbers in counts.items():
        print(f"{who}: " + ", ".join(f"{what} {number:,}" for what, number in numbers.items()))
    print("\npeak memory in MiB, in ten equal parts of the time")
    print("\n".join(scene.memory.table()))
    violations = scene.findings.violations
    print(f"\n{len(violations)} violations" + "".join(f"\n  {text}" for text in violations))
    summary = {"seed": scene.seed, "counts": counts, "violations": violations, "memory": scene.memory.samples}
    (scene.folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return 1 if violations else 0


def _seconds(victims: tuple[Victim, ...]) -> str:
    return ", ".join(f"{one.name} {one.seconds_to_start + one.seconds_of_work:.0f} s" for one in victims)


def _new_folder(folder: Path) -> Path:
    """Empties a folder of an earlier chaos run; refuses any other that is not empty."""
    folder = folder.resolve()
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise SystemExit(f"{folder} holds files of others; choose another --output")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()
    return folder


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, metavar="M", help="length of the chaos (default 60)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="default 0")
    parser.add_argument("--output", type=Path, default=Path("runs/chaos"), metavar="DIR", help="default runs/chaos")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
