"""Agents decide the next action from a goal, the earlier steps and the current screen.

To add one: write a file with an `Agent` and its `AgentSettings`, and add it to `AGENTS`, here or by an entry point.
`vlm-agent evaluate`, `evaluate --online` and `act` then build it from an agent file (`--agent FILE.yaml`, see
`loading.py`).
"""

from vlm_agent.agents.agent import (
    ActsTogether,
    Agent,
    AgentSettings,
    Answer,
    Asked,
    NoAnswerError,
    Turn,
    Usage,
    answer_step_by_step,
    demonstrated,
)
from vlm_agent.agents.auto_ui import AutoUiSettings
from vlm_agent.agents.coat import CoatAgentSettings
from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.agents.endpoint import EndpointSettings
from vlm_agent.agents.scripted import ScriptedSettings
from vlm_agent.agents.vision_tasker import VisionTaskerSettings
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.settings import Registry

__all__ = [
    "AGENTS",
    "ActsTogether",
    "Agent",
    "AgentSettings",
    "Answer",
    "Asked",
    "NoAnswerError",
    "Turn",
    "Usage",
    "answer_step_by_step",
    "demonstrated",
]

AGENTS: Registry[type[AgentSettings]] = Registry(
    "vlm_agent.agents",
    {
        "vlm": VlmSettings,
        "auto_ui": AutoUiSettings,
        "endpoint": EndpointSettings,
        "coat": CoatAgentSettings,
        "dynamic_planning": DynamicPlanningSettings,
        "vision_tasker": VisionTaskerSettings,
        "scripted": ScriptedSettings,
    },
    subclass_of=AgentSettings,
)
