"""`settings` and `getprop`."""

from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError, output
from vlm_agent.simulator.adb_daemon.shell.tools.keyboards import select_keyboard

DENSITY, DISPLAY = 420, 0

PROPERTIES = {
    "dev.bootcomplete": "1",
    "init.svc.bootanim": "stopped",
    "persist.sys.locale": "en-US",
    "persist.sys.timezone": "UTC",
    "ro.boot.serialno": "SIMULATED0",
    "ro.build.characteristics": "default",
    "ro.build.display.id": "SIMULATED.13",
    "ro.build.fingerprint": "vlm-agent/simulated_phone/simulated_phone:13/SIMULATED/13:user/release-keys",
    "ro.build.id": "SIMULATED",
    "ro.build.type": "user",
    "ro.build.version.codename": "REL",
    "ro.build.version.preview_sdk": "0",
    "ro.build.version.release": "13",
    "ro.build.version.sdk": "33",
    "ro.debuggable": "0",
    "ro.hardware": "simulated",
    "ro.product.brand": "vlm-agent",
    "ro.product.cpu.abi": "arm64-v8a",
    "ro.product.cpu.abilist": "arm64-v8a",
    "ro.product.device": "simulated_phone",
    "ro.product.locale": "en-US",
    "ro.product.manufacturer": "vlm-agent",
    "ro.product.model": "Simulated Phone",
    "ro.product.name": "simulated_phone",
    "ro.serialno": "SIMULATED0",
    "ro.sf.lcd_density": str(DENSITY),
    "sys.boot_completed": "1",
}

_NAMESPACES = ("global", "secure", "system")
_KEYBOARD = ("secure", "default_input_method")
_WITHOUT_EFFECT = {"accelerometer_rotation", "font_scale", "user_rotation"}
"""Settings that this phone cannot change from their usual value."""

_WITHHELD = {"airplane_mode_on", "bluetooth_on", "location_mode", "wifi_on", "zen_mode"}
"""Settings that would report or set whether a task is reached; an agent sees and changes them on the screen."""


def getprop(handset: Handset, call: Call) -> Result:
    """`getprop [NAME [DEFAULT]]`. As on Android, an unknown name is an empty line."""
    if call.words:
        return output(PROPERTIES.get(call.words[0], call.words[1] if len(call.words) > 1 else ""))
    return output("\n".join(f"[{name}]: [{value}]" for name, value in PROPERTIES.items()))


def settings(handset: Handset, call: Call) -> Result:
    """`settings [--user N] get|put|delete|list NAMESPACE [KEY [VALUE]]`."""
    words = call.words[2:] if call.words[:1] == ["--user"] else call.words
    if len(words) < 2 or words[1] not in _NAMESPACES:
        raise ToolError("Error: the simulated phone offers settings get|put|delete|list global|secure|system", 255)
    key = (words[1], words[2]) if len(words) > 2 else None
    if key is not None and key[1] in _WITHHELD:
        raise ToolError(f"Error: the simulated phone offers {key[1]} on its screen only")
    match words[0], key, words[3:]:
        case "list", None, []:
            return Result("".join(sorted(f"{name}={one}\n" for name, one in _all(handset, words[1]).items())).encode())
        case "get", (_, name), []:
            return output(_all(handset, words[1]).get(name, "null"))
        case "put", (_, _), [value, *rest] if rest in ([], ["default"]):
            return _put(handset, (words[1], words[2]), value)
        case "delete", (_, _), []:
            deleted = handset.settings.pop((words[1], words[2]), None) is not None
            return output(f"Deleted {int(deleted)} rows")
    raise ToolError("Error: Bad arguments", 255)


def _all(handset: Handset, namespace: str) -> dict[str, str]:
    """Key → value of a namespace."""
    values = {**handset.settings, _KEYBOARD: handset.keyboard}
    return {name: value for (space, name), value in values.items() if space == namespace}


def _put(handset: Handset, key: tuple[str, str], value: str) -> Result:
    if key == _KEYBOARD:
        select_keyboard(handset, value)
    elif key[1] in _WITHOUT_EFFECT and handset.settings.get(key) != value:
        raise ToolError(f"Error: the simulated phone cannot change {key[1]}")
    else:
        handset.settings[key] = value
    return Result()
