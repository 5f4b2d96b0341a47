"""Does a base see which pages a home screen has, and whether there is a drawer?

    python -m studies.shipped_base.home_screens --run RUN [--screens 200]

Asks for the ways to scroll on the first screens of random phones, at random pages, and prints right answers by what the
screen shows.
"""

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from helpers.screens.exam import Question, answer_questions

from shipped_weights.phone_vlm_tiny.drawn.screens import screen_of
from shipped_weights.phone_vlm_tiny.lessons import Lessons
from shipped_weights.screens.styles import SIZES, sample_style
from studies.simulated_phone.swipes import shown_at_home
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.apps.launcher import Launcher


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="a finished run, or the folder of a base")
    parser.add_argument("--screens", type=int, default=200)
    options = parser.parse_args()
    agent = VlmAgent.from_run(options.run)
    lessons = Lessons(agent.sentences)
    phones = [home_screen(number) for number in range(options.screens)]
    screens = [screen_of(phone) for phone in phones]
    questions = [
        Question("ways to scroll", screen, lessons.question("beyond", screen, screen.beyond), None)
        for screen in screens
    ]
    asked, right = Counter(map(shown_at_home, phones)), Counter()
    for phone, answer in zip(phones, answer_questions(agent, iter(questions)), strict=True):
        right[shown_at_home(phone)] += answer.correct
    print("| home screen | screens | right |\n|---|---|---|")
    for shown, count in sorted(asked.items()):
        print(f"| {shown} | {count} | {right[shown]} |")
    print(f"| all | {asked.total()} | {right.total()} |")


def home_screen(number: int) -> SimulatedPhone:
    """A random phone on a random page of its home screen; no run trains on phones of this seed, which is a text."""
    rng = random.Random(f"home {number}")
    phone = SimulatedPhone(rng.getrandbits(48), SIZES[0], sample_style(rng))
    phone.perform(Action.press("home"))
    phone.popup, phone.shade = None, False
    home = phone.the(Launcher)
    home.at = rng.randrange(len(home.pages))
    phone.changed()
    return phone


if __name__ == "__main__":
    main()
