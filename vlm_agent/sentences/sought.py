"""What swipes are for, read from what came of them: the name of what was tapped when they had brought it.

Nobody who is asked for the next action knows it. So it is something to be said, and never something to be read: what an
agent finds in its history is the gesture alone (`TrajectorySentences.build`).
"""

from collections.abc import Sequence

from vlm_agent.action_languages.named import spoken_name, touched_name
from vlm_agent.episodes import Step


def sought_names(steps: Sequence[Step]) -> list[str | None]:
    """For each step the name of what the swipe is to bring, None where it is no swipe or nobody can tell.

    That is what the first action after this swipe and those that follow it touches, if it is a tap on something that
    has a name and did not show yet.
    """
    names, wanted = [], None
    for step in reversed(steps):
        if step.action.is_swipe:
            names.append(None if wanted in map(spoken_name, step.elements) else wanted)
        else:
            wanted = touched_name(step.action, step) if step.action.is_tap else None
            names.append(None)
    return names[::-1]
