"""Long screens: stitched pictures against another tool's result, and simulated pages against the page drawn whole.

    python -m studies.screens.long_screens [--photos FOLDER] [--quick]

`photos`: three screenshots of a real page (1.jpg, 2.jpg, 3.jpg) and the picture that another tool made of them
(stitched.png). `simulated`: pages of simulated phones that scroll, drawn at random from all apps, at their top; half of
them are pages behind a tap. The truth is the same phone with a screen as tall as the page. For each page the device
takes the picture, comes back, and taps a random element beyond the screen. `large`: pages at 2240x1040 pixels.

mean_difference   grey levels, of all pixels; scroll bars, which the whole page does not have, count
within_a_row      the same where each row is compared with the most similar of the page's row and its two neighbours: a
                  phone that scrolls by fractions of a row rounds the place of every element for itself
rows_off          rows whose mean difference exceeds 8 grey levels
rows_too_many     the height of the picture minus that of the page
elements          texts and icons of the whole page that the picture has under the same name within 2 pixels
extra             elements of the picture that the whole page does not have
back              pages that come back to within a row of where they were
taps              taps that hit the same target as on the whole page

The last line of output is JSON.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np
from PIL import Image

from studies.screens.stitching import stitch
from vlm_agent.devices.long_screen import LongScreen
from vlm_agent.episodes import Action, UiElement
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.apps.launcher import LAUNCHER

PHOTOS = Path(__file__).resolve().parents[3] / "shared/data/stitching"
SIZE, LARGE = (448, 208), (2240, 1040)
OFF, NEAR = 8.0, 2.0
PER_PHONE = 3


@dataclass(frozen=True)
class Result:
    activity: str
    rows: int
    rows_too_many: int
    mean_difference: float
    within_a_row: float
    rows_off: int
    elements: int
    found: int
    extra: int
    back: bool
    tap: bool | None
    swipes: int
    seconds: float
    warnings: tuple[str, ...]


def differences(picture: np.ndarray, truth: np.ndarray) -> tuple[float, int]:
    """(mean difference, rows off) over the rows that both have."""
    rows = min(len(picture), len(truth))
    by_row = np.abs(picture[:rows].astype(np.int16) - truth[:rows]).mean((1, 2))
    return round(float(by_row.mean()), 3), int((by_row > OFF).sum())


def within_a_row(picture: np.ndarray, truth: np.ndarray) -> float:
    rows = min(len(picture), len(truth))
    shifted = [np.roll(truth, shift, 0)[:rows] for shift in (-1, 0, 1)]
    nearest = np.min([np.abs(picture[:rows].astype(np.int16) - one).mean((1, 2)) for one in shifted], 0)
    return round(float(nearest.mean()), 3)


def of_photos(folder: Path) -> dict:
    pictures = [np.array(Image.open(folder / f"{number}.jpg").convert("RGB")) for number in (1, 2, 3)]
    published = np.array(Image.open(folder / "stitched.png").convert("RGB"))
    start = time.process_time()
    picture = stitch(pictures).pixels
    seconds = time.process_time() - start
    mean, off = differences(picture, published)
    return {
        "rows": len(picture),
        "published_rows": len(published),
        "mean_difference": mean,
        "rows_off": off,
        "seconds": round(seconds, 2),
    }


def pages(size: tuple[int, int]) -> Iterator[SimulatedPhone]:
    """Phones that show a page that scrolls, at its top."""
    for seed in range(10_000):
        rng = random.Random(f"long screens {seed}")
        phone = SimulatedPhone(seed, size)
        for app in rng.sample(phone.installed, PER_PHONE):
            phone.reset()
            phone.open(app)
            phone.popup = None
            phone.changed()
            if rng.random() < 0.5:
                targets = [one for one in phone.canvas().targets if one.on_tap and not one.key.startswith("system:")]
                if targets:
                    rng.choice(targets).on_tap()
                    phone.changed()
            phone.screenshot()
            route = phone.app(phone.front).route
            is_page = not (phone.at_home or phone.popup or phone.shade or phone.focus)
            if is_page and route.limit >= 1:
                route.scroll = 0.0
                phone.changed()
                yield phone


def measure(phone: SimulatedPhone, rng: random.Random) -> Result:
    route, height = phone.app(phone.front).route, phone.size[0]
    expected = height + round(route.limit * phone.canvas().unit)
    actions: list[Action] = []
    hit: list[str | None] = []
    warnings: list[str] = []

    def record(action: Action) -> None:
        actions.append(action)
        if action.is_tap:
            hit.append(key_at(phone, action))

    device = LongScreen(phone, limit=50, launcher=LAUNCHER, record=record, warn=warnings.append)
    start = time.process_time()
    picture = device.screenshot()
    seconds = time.process_time() - start
    swipes, back = len(actions), route.scroll * phone.canvas().unit < 1
    elements, activity = device.elements(), device.activity
    # Where rounding puts the end of the page one row higher or lower, the truth is drawn so, too.
    is_rounded = abs(len(picture) - expected) <= 1
    with_height(phone, len(picture) if is_rounded else expected)
    truth, truth_elements = phone.screenshot(), phone.elements()
    mean, off = differences(picture, truth)
    found = matches(elements, len(picture), truth_elements, len(truth), phone.size[1])
    beyond = [one for one in elements if one.centre_yx[0] * len(picture) > height]
    wanted = rng.choice(beyond) if beyond else None
    wanted_key = None if wanted is None else key_at(phone, Action.tap(*wanted.centre_yx))
    with_height(phone, height)
    if wanted is not None:
        device.perform(Action.tap(*wanted.centre_yx))
    return Result(
        activity,
        len(picture),
        len(picture) - expected,
        mean,
        within_a_row(picture, truth),
        off,
        len(truth_elements),
        found,
        len(elements) - found,
        back,
        None if wanted is None else hit == [wanted_key],
        swipes,
        round(seconds, 2),
        tuple(warnings),
    )


def with_height(phone: SimulatedPhone, height: int) -> None:
    """The same phone in the same state with a screen of another height."""
    phone.size = (height, phone.size[1])
    phone.changed()


def key_at(phone: SimulatedPhone, action: Action) -> str | None:
    target = phone.target_at(*action.touch_yx)
    return None if target is None else target.key


def matches(found: tuple[UiElement, ...], rows: int, truth: tuple[UiElement, ...], true_rows: int, width: int) -> int:
    """Elements of `truth` that have a partner of the same name in `found`, every edge within `NEAR` pixels."""
    edges = [(one.name, pixel_edges(one, rows, width)) for one in found]
    count = 0
    for one in truth:
        wanted = pixel_edges(one, true_rows, width)
        near = (
            index
            for index, (name, have) in enumerate(edges)
            if name == one.name and np.abs(have - wanted).max() <= NEAR
        )
        index = next(near, None)
        if index is not None:
            count += 1
            del edges[index]
    return count


def pixel_edges(element: UiElement, rows: int, width: int) -> np.ndarray:
    y, x, tall, wide = element.box
    return np.array([y * rows, x * width, (y + tall) * rows, (x + wide) * width])


def summary(results: list[Result]) -> dict:
    taps = [one.tap for one in results if one.tap is not None]
    means = [one.mean_difference for one in results]
    return {
        "pages": len(results),
        "rows": {"median": median(one.rows for one in results), "max": max(one.rows for one in results)},
        "height_right": sum(one.rows_too_many == 0 for one in results),
        "height_off_by_one": sum(abs(one.rows_too_many) == 1 for one in results),
        "below_1_grey_level": sum(mean < 1 for mean in means),
        "mean_difference": {"mean": round(fmean(means), 3), "max": max(means)},
        "within_a_row": {
            "mean": round(fmean(one.within_a_row for one in results), 3),
            "max": max(one.within_a_row for one in results),
            "below_1": sum(one.within_a_row < 1 for one in results),
        },
        "rows_off": {"mean": round(fmean(one.rows_off for one in results), 1), "max": max(o.rows_off for o in results)},
        "elements": sum(one.elements for one in results),
        "found": sum(one.found for one in results),
        "extra": sum(one.extra for one in results),
        "back": sum(one.back for one in results),
        "taps": [sum(taps), len(taps)],
        "swipes": round(fmean(one.swipes for one in results), 1),
        "seconds": round(fmean(one.seconds for one in results), 2),
        "warnings": [warning for one in results for warning in one.warnings],
        "worst": [asdict(one) for one in sorted(results, key=lambda one: -one.mean_difference)[:5]],
    }


def of_simulated(count: int, size: tuple[int, int]) -> dict:
    rng, results = random.Random(0), []
    start = time.monotonic()
    for phone in pages(size):
        results.append(measure(phone, rng))
        if len(results) % 20 == 0:
            left = (time.monotonic() - start) / len(results) * (count - len(results))
            print(f"{len(results)} of {count} pages, ETA {left:.0f} s", flush=True)
        if len(results) == count:
            break
    return summary(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, default=PHOTOS, help="default: ../shared/data/stitching")
    parser.add_argument("--quick", action="store_true", help="12 pages instead of 120, and none of them large")
    options = parser.parse_args()
    figures = {"photos": of_photos(options.photos) if options.photos.is_dir() else None}
    figures["simulated"] = of_simulated(12 if options.quick else 120, SIZE)
    if not options.quick:
        figures["large"] = of_simulated(5, LARGE)
    for name, part in figures.items():
        print(name, json.dumps(part, indent=1))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
