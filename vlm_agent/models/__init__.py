"""Models that read screens and write actions, and how they are adapted."""

from vlm_agent.models.torchvision_on_cpu import declare_operators

declare_operators()
