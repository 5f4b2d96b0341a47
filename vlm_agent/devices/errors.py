"""Errors of devices. Every message states the problem and what the user can do about it."""

from vlm_agent.errors import UserError


class DeviceError(UserError):
    """A device cannot be opened or used."""


class NoAdbError(DeviceError):
    """The program `adb` is not installed, or its server does not start."""


class NoDeviceError(DeviceError):
    """No phone is connected, or the requested one is not."""


class SeveralDevicesError(DeviceError):
    """Several phones are connected and the user did not choose one."""


class UnauthorisedError(DeviceError):
    """The phone has not authorised this computer for debugging, or adb has no permission to open it."""


class OfflineError(DeviceError):
    """The phone is connected but does not respond, or is in an unusable state."""


class DeviceLostError(DeviceError):
    """The connection was lost and not restored in time. No action was in progress."""


class ActionInDoubtError(DeviceError):
    """The connection broke during an action, so it is unknown whether the action took effect.

    The action is not repeated. The phone remains usable; a screenshot shows its state.
    """


class ScreenOffError(DeviceError):
    """The screen is off."""


class LockedError(DeviceError):
    """The phone is locked."""


class UntypableTextError(DeviceError):
    """The text cannot be typed with the phone's current keyboard; none of it was typed."""


class UnknownAppError(DeviceError):
    """No app, or several apps, have this name; none was opened."""


class RefusedError(DeviceError):
    """A command on the phone reported a failure."""


class NotPermittedError(DeviceError):
    """An action was not permitted on the screen that a device was about to perform it on; it was not performed."""
