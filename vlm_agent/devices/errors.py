"""What goes wrong with phones. Every message says what it is and what the person at the terminal can do about it."""


class DeviceError(ValueError):
    """Something about the phone; the message is for the person at the terminal."""


class NoAdbError(DeviceError):
    """There is no program `adb` that runs, or its server does not start."""


class NoDeviceError(DeviceError):
    """No phone is connected, or not the one that was named."""


class SeveralDevicesError(DeviceError):
    """More than one phone is connected and none was named."""


class UnauthorisedError(DeviceError):
    """The phone has not allowed this computer to debug it, or this computer does not let adb open it."""


class OfflineError(DeviceError):
    """The phone is connected and does not answer, or is in a state in which nothing can be done."""


class DeviceLostError(DeviceError):
    """The phone was there, went away, and did not come back in time. No action is in doubt."""


class ActionInDoubtError(DeviceError):
    """The connection was cut while an action was under way: whether it was done is not known.

    It is not done again. The phone can be used on; a screenshot tells.
    """


class ScreenOffError(DeviceError):
    """The screen is dark."""


class LockedError(DeviceError):
    """The lock screen is in front."""


class UntypableTextError(DeviceError):
    """Text that cannot be typed on this phone as it is set up; nothing of it was typed."""


class RefusedError(DeviceError):
    """The phone has run a command and says that it failed."""
