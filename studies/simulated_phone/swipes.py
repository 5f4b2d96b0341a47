"""How often the direction of an expert's swipe follows from what an agent can see.

    python -m studies.simulated_phone.swipes [--tasks 1500]

On a home screen a hidden app is on another page or in the drawer, and only the expert knows where. Its swipes there are
counted by what the screen shows: whether there is a drawer, the number of pages, and the page. An agent that always
chooses the most frequent direction is right as often as one can be. All other swipes count as known.
"""

import argparse
from collections import Counter, defaultdict

from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.apps.launcher import Launcher
from vlm_agent.simulator.demonstrations import simulated_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1500)
    at_home, others = counted(parser.parse_args().tasks)
    print("| on the home screen | swipes | most frequent direction, % |\n|---|---|---|")
    for what, directions in sorted(at_home.items(), key=lambda row: -row[1].total()):
        print(f"| {what} | {directions.total()} | {100 * max(directions.values()) / directions.total():.1f} |")
    right = others + sum(max(directions.values()) for directions in at_home.values())
    swipes = others + sum(directions.total() for directions in at_home.values())
    print(f"\n{swipes} swipes: at most {100 * right / swipes:.1f} % can be right")


def counted(tasks: int) -> tuple[dict[str, Counter[str]], int]:
    """The directions of swipes by what a home screen shows, and the number of all other swipes."""
    at_home: dict[str, Counter[str]] = defaultdict(Counter)
    others = 0
    for task in simulated_tasks(tasks, 9, "train"):
        phone, _ = task.fresh_phone()
        for action in task.solution().actions:
            if action.is_swipe and (what := shown_at_home(phone)) is not None:
                at_home[what][str(action.direction)] += 1
            else:
                others += action.is_swipe
            phone.perform(action)
    return at_home, others


def shown_at_home(phone: SimulatedPhone) -> str | None:
    """What a home screen shows of where apps are; None on another screen."""
    home = phone.the(Launcher)
    if phone.shown != home.name or home.route.name != "home":
        return None
    return f"{'a' if phone.theme.drawer != 'none' else 'no'} drawer, page {home.at + 1} of {len(home.pages)}"


if __name__ == "__main__":
    main()
