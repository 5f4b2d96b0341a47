"""Preemption: after SIGTERM or SIGUSR1 the step in progress ends, the run saves a checkpoint and exits, resumable.

Slurm sends SIGUSR1 when a job is about to lose its machine (`--signal`), and SIGTERM when it is cancelled or preempted.
With several ranks all stop after the same step, even where the signal reached only one.

torchrun forwards SIGTERM to its ranks. SIGUSR1 kills it, and with it the run, unless it is ignored there and sent to
the ranks themselves, as `slurm/train_node.sh` does. It gives the ranks `--shutdown-timeout` seconds (30) to end, which
must be enough for one step and one checkpoint, and exits with status 1, whatever theirs is. A script under torchrun
recognises a run that was stopped, not broken, by the file `STOPPED` in the run folder.
"""

import signal
from pathlib import Path
from types import FrameType
from typing import Any

from vlm_agent.files import atomic_write
from vlm_agent.training.loop import ranks

STOPPED = "stopped"
"""A file in the run folder of a stopped run; it holds the message that was printed."""


class Preemption:
    """A context manager that receives the signals; the loop asks it after every step whether to stop.

    The handler only records the signal, so that it interrupts neither a checkpoint being written nor a collective. A
    signal before the first step, or during an update, validation or saving, takes effect after the next step.
    `stopped_after`: the number of steps after which the run stopped; None where it ran to its end. After a stop the
    handler stays: a sender may repeat the signal (`slurm/common.sh` does), which must not end the process before its
    exit status.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.stopped_after: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Preemption":
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        if self.stopped_after is None:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)

    @property
    def number(self) -> int:
        """The signal of this rank; 0: none yet."""
        return 0 if self.received is None else self.received

    def stops(self, step: int, steps: int, number: int) -> bool:
        """Whether the run stops after `step` of `steps`. `number`: the highest of all ranks. After the last step
        nothing is left to stop."""
        if not number or step == steps:
            return False
        self.received, self.stopped_after = signal.Signals(number), step
        return True

    def report(self, run: Path) -> str:
        """A message: what was saved and how to resume. Rank 0 writes it to the run folder.

        The ranks wait for each other, because a launcher that sees one rank exit ends the others.
        """
        assert self.received is not None  # noqa: S101 (only a stopped run is reported)
        words = (
            f"{run}: stopped by {self.received.name} after step {self.stopped_after}, which is saved; "
            "run the same command again to resume"
        )
        if ranks.number() == 0:
            with atomic_write(run / STOPPED) as temporary:
                temporary.write_text(words + "\n", encoding="utf-8")
        ranks.wait()
        return words


def forget_stop(run: Path) -> None:
    """Removes the file of an earlier stop. Called by rank 0 of a run that starts or resumes."""
    (run / STOPPED).unlink(missing_ok=True)


SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


def leave_stopping_to_parent(worker: int) -> None:
    """`worker_init_fn` of a DataLoader: its processes ignore the signals, which the training process handles.

    torchrun and Slurm signal every process of a job. A worker killed by one would break the step in progress and the
    checkpoint after it. A worker whose parent is gone exits by itself.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
