"""AndroidWorld's interface, as much of it as an agent touches, in front of a simulated phone.

Its modules are put into `sys.modules` under their own names. What they check and do follows
google-research/android_world at d9c569f.
"""

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

from vlm_agent.episodes import Action
from vlm_agent.simulator.opening import SimulatedTask

TYPES = {"click", "double_tap", "scroll", "swipe", "input_text", "navigate_home", "navigate_back", "keyboard_enter"}
TYPES |= {"open_app", "status", "wait", "long_press", "answer", "unknown"}


@dataclass
class JSONAction:
    action_type: str | None = None
    index: int | None = None
    x: int | None = None
    y: int | None = None
    text: str | None = None
    direction: str | None = None
    goal_status: str | None = None
    app_name: str | None = None
    keycode: str | None = None
    clear_text: bool | None = None

    def __post_init__(self):
        if self.action_type not in TYPES:
            raise ValueError(f"Invalid action type: {self.action_type}")
        if self.direction not in (None, "left", "right", "up", "down"):
            raise ValueError(f"Invalid scroll direction: {self.direction}")


@dataclass
class AgentInteractionResult:
    done: bool
    data: dict[str, Any]


class EnvironmentInteractingAgent(ABC):
    def __init__(self, env, name="", transition_pause=1.0):
        self.env, self.name, self.transition_pause = env, name, transition_pause

    def reset(self, go_home=False):
        self.env.reset(go_home=go_home)

    def get_post_transition_state(self):
        return self.env.get_state(wait_to_stabilize=self.transition_pause is None)

    @abstractmethod
    def step(self, goal): ...


@dataclass
class SimulatedWorld:
    """An `AsyncEnv`, and a task of AndroidWorld, on a simulated phone of 208 × 448 pixels."""

    address: str
    executed: list = field(default_factory=list)
    hidden: int = 0

    complexity = 2.0
    logical_screen_size = (208, 448)

    def __post_init__(self):
        subset, split, seed = self.address.split("/")
        task = SimulatedTask(subset, split, int(seed))
        self.phone, self.task = task.fresh_phone()
        self.solution = task.solution().actions
        self.controller, self.goal = self, self.task.goal

    @property
    def foreground_activity_name(self):
        return self.phone.activity

    def reset(self, go_home=False): ...

    def hide_automation_ui(self):
        self.hidden += 1

    def get_state(self, wait_to_stabilize=False):
        width, height = self.logical_screen_size
        elements = []
        for one in self.phone.elements():
            y, x, h, w = one.box
            box = SimpleNamespace(x_min=x * width, x_max=(x + w) * width, y_min=y * height, y_max=(y + h) * height)
            elements.append(SimpleNamespace(text=one.text, content_description=None, bbox_pixels=box, is_visible=True))
        return SimpleNamespace(pixels=self.phone.screenshot(), forest=None, ui_elements=elements)

    def execute_action(self, action):
        self.executed.append(action)
        kind = action.action_type
        at = None if action.x is None else ((action.y + 0.5) / 448, (action.x + 0.5) / 208)
        performed = {
            "click": lambda: [Action.tap(*at)],
            "long_press": lambda: [Action.long_press(*at)],
            "input_text": lambda: [Action.type_text(action.text), Action.press("enter")],
            "navigate_back": lambda: [Action.press("back")],
            "navigate_home": lambda: [Action.press("home")],
            "keyboard_enter": lambda: [Action.press("enter")],
            "open_app": lambda: [Action.open_app(action.app_name)],
            "answer": lambda: [Action.answer(action.text)],
            "wait": list,
        }
        for one in performed[kind]():
            self.phone.perform(one)

    # The task

    def initialize_task(self, env): ...

    def is_successful(self, env):
        return float(self.task.reached(self.phone))


def generate_swipe_command(start_x, start_y, end_x, end_y, duration_ms=None):
    return ["shell", "input", "swipe", *map(str, (start_x, start_y, end_x, end_y)), str(duration_ms)]


def issue_generic_request(args, env):
    env.executed.append(args)
    x, y, to_x, to_y = map(int, args[3:7])
    env.phone.perform(Action.swipe(((y + 0.5) / 448, (x + 0.5) / 208), ((to_y + 0.5) / 448, (to_x + 0.5) / 208)))


def install(monkeypatch, world):
    """AndroidWorld's modules; its launcher opens `world`, which is also the only task."""

    def put(name, **content):
        module = ModuleType(f"android_world{name}")
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return module

    task = type("Task", (), {"generate_random_params": dict, "__new__": lambda _, params: world})
    tasks = SimpleNamespace(get_registry=lambda family: {"ContactsAddContact": task})
    launcher = put(".env.env_launcher", load_and_setup_env=lambda **_: world)
    actions = put(".env.json_action", JSONAction=JSONAction)
    adb = put(
        ".env.adb_utils", generate_swipe_command=generate_swipe_command, issue_generic_request=issue_generic_request
    )
    base = put(
        ".agents.base_agent",
        AgentInteractionResult=AgentInteractionResult,
        EnvironmentInteractingAgent=EnvironmentInteractingAgent,
    )
    registry = put(".registry", TaskRegistry=lambda: tasks)
    env = put(".env", env_launcher=launcher, json_action=actions, adb_utils=adb)
    put("", env=env, agents=put(".agents", base_agent=base), registry=registry)
