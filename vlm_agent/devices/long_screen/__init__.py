"""Long screens (VisionTasker): a page that scrolls, as one tall picture of a device around any device."""

from vlm_agent.devices.long_screen.device import LongScreen, OwnAction

__all__ = ["LongScreen", "OwnAction"]
