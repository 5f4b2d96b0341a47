"""The signals that ask a run to stop, and the processes that must not hear them."""

import signal

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


def leave_stopping_to_parent(worker: int) -> None:
    """For `worker_init_fn` of a DataLoader: its processes live until the training process has read what it needs.

    torchrun and Slurm signal every process of a job. A loader's worker that died of it would break the step in progress
    and the checkpoint after it; one whose parent is gone ends by itself.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
