"""`ime`: the keyboards of the phone."""

from vlm_agent.simulator.adb_daemon.handset import USUAL_KEYBOARD, Handset
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError, output


def ime(handset: Handset, call: Call) -> Result:
    """`ime list [-s] [-a]`, `ime enable|disable|set ID`, `ime reset`."""
    match call.words:
        case ["list", *options] if set(options) <= {"-s", "-a"}:
            listed = [item for item in handset.keyboards if "-a" in options or item in handset.enabled]
            lines = (f"{item}\n" if "-s" in options else f"{item}:\n  mId={item}\n" for item in listed)
            return Result("".join(lines).encode())
        case ["reset"]:
            handset.keyboard, handset.enabled = USUAL_KEYBOARD, {USUAL_KEYBOARD}
            return output("Reset current and enabled IMEs for user #0")
        case ["enable", name]:
            return _enable(handset, name)
        case ["disable", name]:
            return _disable(handset, name)
        case ["set", name]:
            select_keyboard(handset, name)
            return output(f"Input method {name} selected for user #0")
    raise ToolError("Error: the simulated phone offers ime list, enable, disable, set and reset")


def select_keyboard(handset: Handset, name: str) -> None:
    """Raises ToolError for a keyboard that is not installed or not enabled."""
    if name not in handset.enabled:
        raise ToolError(f"Unknown input method {name} cannot be selected for user #0")
    handset.keyboard = name


def _enable(handset: Handset, name: str) -> Result:
    if name not in handset.keyboards:
        raise ToolError(f"Unknown input method {name} cannot be enabled for user #0")
    state = "already" if name in handset.enabled else "now"
    handset.enabled.add(name)
    return output(f"Input method {name}: {state} enabled for user #0")


def _disable(handset: Handset, name: str) -> Result:
    """Another keyboard takes the place of the selected one."""
    if name not in handset.keyboards:
        raise ToolError(f"Unknown input method {name} cannot be disabled for user #0")
    if handset.enabled == {name}:
        raise ToolError(f"Error: {name} is the last keyboard of the simulated phone")
    state = "now" if name in handset.enabled else "already"
    handset.enabled.discard(name)
    if handset.keyboard == name:
        handset.keyboard = next(item for item in handset.keyboards if item in handset.enabled)
    return output(f"Input method {name}: {state} disabled for user #0")
