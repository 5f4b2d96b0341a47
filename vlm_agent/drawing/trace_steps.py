"""Steps of a trace as pictures: each screen with its action, and with the outcome of every action that was not
certainly performed."""

from PIL import Image, ImageFont

from vlm_agent.datasets.sources.traces import DONE, IN_DOUBT, OUTCOME_WORDS, Trace, TraceStep
from vlm_agent.drawing import shapes
from vlm_agent.drawing.actions import PREDICTED, describe_with_place, draw_action, draw_words
from vlm_agent.drawing.shapes import Colour
from vlm_agent.errors import DatasetError

NOT_PERFORMED: Colour = (96, 100, 108)
DOUBTFUL: Colour = (176, 92, 0)


def draw_step(trace: Trace, step: TraceStep, height: int) -> Image.Image:
    """The screen scaled to `height` pixels, with its action: `PREDICTED` if it was performed, `DOUBTFUL` with the label
    "in doubt", or `NOT_PERFORMED` with its outcome as the label. The mark is drawn after scaling, so that it is sharp.

    Raises DatasetError for a screen that cannot be read.
    """
    screen = Image.fromarray(trace.screen(step))
    width = max(1, round(screen.width * height / screen.height))
    screen = screen.resize((width, height), Image.Resampling.LANCZOS)
    elements = step.elements or ()
    if step.outcome == DONE and step.action is not None:
        return draw_action(screen, step.action, PREDICTED, elements=elements)
    label, colour = OUTCOME_WORDS[step.outcome], DOUBTFUL if step.outcome == IN_DOUBT else NOT_PERFORMED
    if step.action is None:
        return draw_words(screen, label, colour)
    return draw_action(screen, step.action, colour, label, elements=elements)


def caption(step: TraceStep, letters: ImageFont.FreeTypeFont, width: float, lines: int) -> list[str]:
    """The agent's answer in at most `lines` lines of `width` pixels.

    An answer that would be cut is replaced by its action and the place of it, because answers end with the action.
    """
    answer = shapes.wrap(step.answer, letters, width, lines)
    if step.action is None or " ".join(answer).split() == step.answer.split():
        return answer
    return shapes.wrap(describe_with_place(step.action), letters, width, lines)


def check_steps(trace: Trace) -> None:
    """Raises DatasetError for a trace without steps."""
    if not trace.steps:
        raise DatasetError(f"{trace.folder} has no steps to draw")


def outcomes_in_words(trace: Trace) -> str:
    """For example `4 steps: 3 performed, 1 withheld`."""
    counts = [f"{number} {OUTCOME_WORDS[outcome]}" for outcome, number in trace.outcomes().items()]
    return f"{len(trace.steps)} steps" + (f": {', '.join(counts)}" if counts else "")
