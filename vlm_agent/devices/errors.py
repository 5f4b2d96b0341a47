"""Errors of devices. Every message states the problem and what the user can do about it."""

from vlm_agent.errors import UserError


class DeviceError(UserError):
    """A device cannot be opened or used."""


class NoDeviceError(DeviceError):
    """No phone can be used: adb does not run, or no phone, several, or one that does not answer is connected."""


class DeviceLostError(DeviceError):
    """The connection was lost and not restored in time. No action was in progress."""


class ActionInDoubtError(DeviceError):
    """The connection broke during an action, so it is unknown whether the action took effect.

    The action is not repeated. The phone remains usable; a screenshot shows its state.
    """


class LockedError(DeviceError):
    """The screen is off, or the phone is locked."""


class UntypableTextError(DeviceError):
    """The text cannot be typed with the phone's current keyboard; none of it was typed."""


class UnknownAppError(DeviceError):
    """No app, or several apps, have this name; none was opened."""


class RefusedError(DeviceError):
    """A command on the phone reported a failure."""


class NotJudgedError(DeviceError):
    """Whether a goal is reached is not known."""


class NotPermittedError(DeviceError):
    """An action was not permitted on the screen that a device was about to perform it on; it was not performed."""
