"""Elements that are read from the pixels of screens, in place of those that a phone or a data set provides."""

from vlm_agent.agents.read_screens.agent import ReadEpisodes, ReadingAgent, with_read_elements
from vlm_agent.agents.read_screens.reader import ScreenReader

__all__ = ["ReadEpisodes", "ReadingAgent", "ScreenReader", "with_read_elements"]
