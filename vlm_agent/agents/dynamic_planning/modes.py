"""The modes of planning as data: what a step asks for first, what is remembered, and whether an answer is checked."""

from dataclasses import dataclass
from typing import Literal

First = Literal["nothing", "description", "plan", "plan_and_step"]
Memory = Literal["nothing", "actions", "steps", "rounds"]


@dataclass(frozen=True)
class Mode:
    """`first`: the call before the action's. `description`: what to do next, in words, from which the action is chosen.
    `plan`: the action's call shows the plan. `plan_and_step`: it shows the immediate step, and not the plan.

    `once`: the plan is asked for at the first screen of an episode and stays.

    `memory`: what a call shows of earlier steps. `actions`: a line each, in words. `steps`: the line of each immediate
    step. `rounds`: the last screens with their answers, as turns of the chat.

    `thought`: the action's answer begins with a thought. `feedback`: an action that is judged wrong is asked for once
    more. `examples`: the system turn of the action's call has examples.
    """

    first: First = "nothing"
    once: bool = False
    memory: Memory = "nothing"
    thought: bool = False
    feedback: bool = False
    examples: bool = False


MODES: dict[str, Mode] = {
    "none": Mode(),
    "few_shot": Mode(examples=True),
    "seeact": Mode(first="description", memory="actions"),
    "react": Mode(memory="rounds", thought=True),
    "static": Mode(first="plan", once=True),
    "dynamic": Mode(first="plan"),
    "d_pot": Mode(first="plan_and_step", memory="steps"),
    "reflexion": Mode(feedback=True),
}
