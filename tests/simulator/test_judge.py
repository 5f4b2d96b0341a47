"""The judge of simulated tasks has no shortcut (all figures: `python -m benchmarks.simulated_phone --judge`)."""

import pytest

from benchmarks.simulated_phone import judged
from vlm_agent.simulator import SimulatedPhone, Task, sample_task
from vlm_agent.simulator.apps.calendar import Calendar
from vlm_agent.simulator.demonstrations import simulated_tasks


def test_no_goal_is_reached_at_the_start_every_one_by_the_expert_and_few_at_random():
    found = judged(simulated_tasks(80, 0, "train"), 25)
    assert (found.at_start, found.by_expert) == (0, found.tasks)
    assert found.at_random <= 4


def tasks_of(*templates: str, words: str = "") -> list[Task]:
    """A task of each template, with the words in its goal."""
    sampled = (sample_task("single", "train", seed) for seed in range(3000))
    fitting = {task.template: task for task in sampled if task.template in templates and words in task.goal}
    assert set(fitting) == set(templates)
    return list(fitting.values())


def started(task: Task) -> SimulatedPhone:
    phone = SimulatedPhone(task.seed)
    task.set_up(phone)
    return phone


@pytest.mark.parametrize(
    "task",
    [
        *tasks_of(
            "turn_photo", "section_here", "event_here", "close_shade", "scroll_back", "open_site_here", "go_back"
        ),
        *tasks_of("mail_here", words="Open"),
        *tasks_of("product_here", words="Look at"),
    ],
    ids=lambda task: task.template,
)
def test_a_page_that_a_goal_names_must_be_on_the_screen(task):
    phone = started(task)
    task.solve(phone, pixels=False)
    assert task.reached(phone)
    phone.shade = True
    assert not task.reached(phone)
    phone.press_home()
    assert not task.reached(phone)


def test_quick_settings_over_another_app_are_not_those_that_were_asked_for():
    (task,) = tasks_of("pull_shade")
    phone = started(task)
    phone.press_home()
    phone.shade = True
    assert not task.reached(phone)


def test_another_page_is_not_the_top_of_the_page_that_was_to_be_scrolled():
    (task,) = tasks_of("scroll_back")
    phone = started(task)
    app = phone.app(phone.front)
    app.push("another")
    assert app.route.scroll == 0 and not task.reached(phone)


def test_the_event_of_the_same_name_on_another_day_is_another_event():
    (task,) = tasks_of("event_here")
    phone = started(task)
    task.solve(phone, pixels=False)
    phone.the(Calendar).at += 1 if phone.the(Calendar).at == 0 else -1
    assert not task.reached(phone)
