"""Long screens (VisionTasker): a page that scrolls, as one tall picture of a device around any device."""

from vlm_agent.devices.long_screen.device import LongScreen, OwnAction
from vlm_agent.devices.long_screen.tall import stitch

__all__ = ["LongScreen", "OwnAction", "stitch"]
