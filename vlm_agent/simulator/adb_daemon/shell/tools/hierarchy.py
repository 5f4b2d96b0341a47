"""`uiautomator dump`: the screen's elements in the XML format of Android's accessibility service.

Attributes are in the order of Android's `AccessibilityNodeInfoDumper`. Every node is a child of the hierarchy: the
simulated phone draws no containers. It has no resource ids, no long presses and no fields for passwords.
"""

from xml.sax.saxutils import quoteattr

from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.nodes import FIELD, Node, screen_nodes
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError, output

_USUAL_FILE = "/sdcard/window_dump.xml"


def uiautomator(handset: Handset, call: Call) -> Result:
    """`uiautomator dump [--compressed] [FILE]`. The dump lists texts and icons only, with or without `--compressed`."""
    match [word for word in call.words if word != "--compressed"]:
        case ["dump"]:
            path = _USUAL_FILE
        case ["dump", path] if not path.startswith("-"):
            pass
        case _:
            raise ToolError("Error: the simulated phone offers uiautomator dump [--compressed] [FILE]")
    if not handset.is_awake:
        raise ToolError("ERROR: null root node returned by UiTestAutomationBridge.")
    message = f"UI hierchary dumped to: {path}"  # Android's own spelling
    if path in ("/dev/tty", "/dev/stdout"):
        return output(_dump(handset) + message)
    handset.files.write(path, _dump(handset).encode())
    return output(message)


def _dump(handset: Handset) -> str:
    nodes = (_as_xml(index, node) for index, node in enumerate(screen_nodes(handset)))
    root = "".join(('<hierarchy rotation="0">', *nodes, "</hierarchy>"))
    return f"<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>{root}"


def _as_xml(index: int, node: Node) -> str:
    left, top, right, bottom = node.bounds
    values: dict[str, str | bool] = {
        "index": str(index),
        "text": node.text,
        "resource-id": "",
        "class": f"android.widget.{node.kind}",
        "package": node.package,
        "content-desc": node.description,
        "checkable": node.checked is not None,
        "checked": node.checked is True,
        "clickable": node.is_clickable,
        "enabled": True,
        "focusable": node.kind == FIELD,
        "focused": node.is_focused,
        "scrollable": node.is_scrollable,
        "long-clickable": False,
        "password": False,
        "selected": node.is_selected,
        "bounds": f"[{left},{top}][{right},{bottom}]",
        "hint": node.hint,
    }
    words = {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items()}
    return f"<node {' '.join(f'{name}={quoteattr(value)}' for name, value in words.items())} />"
