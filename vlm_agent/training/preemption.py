"""Being told to stop: SIGTERM or SIGUSR1 lets the step in progress end, saves and leaves, to be resumed.

Slurm sends SIGUSR1 when a job is about to lose its machine (`--signal`), and SIGTERM when it is cancelled or preempted.
With several ranks all stop after the same step, although the signal may have reached only one.

torchrun forwards SIGTERM to its ranks. SIGUSR1 kills it, and with it the run, unless it is ignored there and sent to
the ranks themselves, as `slurm/train_node.sh` does. It gives the ranks `--shutdown-timeout` seconds (30) to end, which
must be enough for one step and one checkpoint, and it ends with its own status, 1, whatever theirs is: what tells a
script under torchrun that the run was stopped and not broken is the file `STOPPED` in the run folder.
"""

import signal
from pathlib import Path

from transformers import TrainerCallback

from vlm_agent.datasets import written_whole
from vlm_agent.training import ranks
from vlm_agent.training.stop_signals import SIGNALS

EXIT_STATUS = 75
"""EX_TEMPFAIL of sysexits.h: stopped from outside, saved, and the same command goes on from there."""

STOPPED = "stopped"
"""In the run folder of a run that was told to stop; the words that were printed."""


class Preemption(TrainerCallback):
    """Hears the signals while it is entered (a context manager), and stops the Trainer whose callback it is.

    The handler only notes the signal, so that it can break nothing: not a checkpoint that is being written, not a
    collective. One that comes before the first step or during validation or saving is obeyed after the next step.
    `stopped_after`: the number of steps after which the run was stopped, None where it ran to its end.
    """

    def __init__(self):
        self.received: signal.Signals | None = None
        self.stopped_after: int | None = None
        self._before = {}

    def __enter__(self) -> "Preemption":
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *error) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number, frame) -> None:
        self.received = signal.Signals(number)

    def on_step_end(self, args, state, control, **_):
        """Every rank asks the others after every step; the last step needs no stopping."""
        number = ranks.highest(0 if self.received is None else self.received)
        if number and state.global_step < state.max_steps:
            self.received, self.stopped_after = signal.Signals(number), state.global_step
            control.should_save = control.should_training_stop = True
            # Whoever sent the signal may not wait for a validation.
            control.should_evaluate = False

    def report(self, run: Path) -> str:
        """What was saved and how to go on; rank 0 leaves it in the run folder, and no rank returns before.

        A launcher that sees one rank leave ends the others.
        """
        words = (
            f"{run}: stopped by {self.received.name} after step {self.stopped_after}, which is saved; "
            "the same command goes on from there"
        )
        if ranks.number() == 0:
            with written_whole(run / STOPPED) as temporary:
                temporary.write_text(words + "\n", encoding="utf-8")
        ranks.wait()
        return words


def forget_stop(run: Path) -> None:
    """For rank 0 of a run that begins or goes on."""
    (run / STOPPED).unlink(missing_ok=True)
