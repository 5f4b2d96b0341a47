"""Blocks of parts that belong together, their titles, and the active tab (VisionTasker, sections 4.3.3 and 4.3.4)."""

from vlm_agent.screens.blocks.grouping import find_blocks
from vlm_agent.screens.blocks.tabs import active_tabs

__all__ = ["active_tabs", "find_blocks"]
