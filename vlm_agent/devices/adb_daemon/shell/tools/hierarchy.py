"""`uiautomator dump`: the screen's elements in the XML format of Android's accessibility service."""

from xml.sax.saxutils import quoteattr

from vlm_agent.devices.adb_daemon.handset import Handset
from vlm_agent.devices.adb_daemon.shell.session import Call, Result, ToolError, output
from vlm_agent.episodes import UiElement

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
    phone, content = handset.phone, handset.field_text
    nodes = "".join(_node(element, phone.size, content) for element in phone.elements())
    return f"<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy rotation=\"0\">{nodes}</hierarchy>"


def _node(element: UiElement, size: tuple[int, int], content: str | None) -> str:
    """`content`: of the text field with the focus, None without one. An empty field shows nothing to describe."""
    y, x, height, width = element.box
    top, left, bottom, right = (
        round(side * pixels) for side, pixels in zip((y, x, y + height, x + width), (*size, *size), strict=True)
    )
    is_text = element.type == "TEXT"
    description = "" if is_text else element.type.removeprefix("ICON_").lower().replace("_", " ")
    focused = (
        ' class="android.widget.EditText" focused="true"' if is_text and content and element.text == content else ""
    )
    return (
        f"<node text={quoteattr(element.text if is_text else '')} content-desc={quoteattr(description)} "
        f'bounds="[{left},{top}][{right},{bottom}]"{focused} />'
    )
