"""Methods of reinforcement by their name in `reinforcement.method`: from the rollouts of one task to advantages."""

from vlm_agent.reinforcement.methods.method import Method, Trial
from vlm_agent.settings import Registry

METHODS: Registry[Method] = Registry(
    "vlm_agent.reinforcement_methods",
    {name: f"vlm_agent.reinforcement.methods.{name}:METHOD" for name in ("filtered", "awr", "grpo", "gigpo")},
    instance_of=Method,
)

__all__ = ["METHODS", "Method", "Trial"]
