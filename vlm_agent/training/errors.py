"""What stops a run."""


class TrainingError(ValueError):
    """A run that cannot go on, with what to change."""


class Stopped(Exception):  # noqa: N818 (nothing is wrong)
    """A run that was told to stop and has saved everything; the words say how to go on."""
