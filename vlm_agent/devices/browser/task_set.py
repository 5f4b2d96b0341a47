"""The task set `browser`: goals of the shop and the settings, without an expert."""

from collections.abc import Sequence
from itertools import count as numbers
from itertools import islice
from typing import ClassVar

from vlm_agent.devices.browser.tasks import SITES, BrowserTask, browser_task
from vlm_agent.devices.task_sets import TaskSet, check_split, split_of


class BrowserTasks(TaskSet):
    """Tasks of the sites in turn. A goal's words are in one split alone."""

    at_once: ClassVar[int | None] = 1  # Playwright allows one a thread

    task_set: str = "browser"

    def tasks(self, count: int, seed: int, split: str) -> Sequence[BrowserTask]:
        check_split(split)
        every = (browser_task(SITES[number % len(SITES)], number) for number in numbers(seed << 32))
        return list(islice((task for task in every if split_of(f"browser/{task.goal}") == split), count))
