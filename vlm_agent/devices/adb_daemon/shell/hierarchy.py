"""`uiautomator dump` and `cat`: the screen's elements in the XML format of Android's accessibility service."""

from xml.sax.saxutils import quoteattr

from vlm_agent.devices.adb_daemon.handset import Handset
from vlm_agent.devices.adb_daemon.shell.session import Command, Result, failure, output
from vlm_agent.episodes import UiElement


def hierarchy_commands(handset: Handset) -> dict[str, Command]:
    """Name → command, for `Shell`."""

    def uiautomator(words: list[str]) -> Result:
        if len(words) != 2 or words[0] != "dump":
            return failure("Error: only uiautomator dump FILE is offered by the simulated phone")
        try:
            handset.files.put(words[1], _dump(handset).encode())
        except OSError as error:
            return failure(f"Error: {error}")
        return output(f"UI hierchary dumped to: {words[1]}")  # Android's own spelling

    def cat(words: list[str]) -> Result:
        missing = next((path for path in words if path not in handset.files), None)
        if missing is not None:
            return failure(f"cat: {missing}: No such file or directory")
        return Result(b"".join(handset.files[path].data for path in words))

    return {"cat": cat, "uiautomator": uiautomator}


def _dump(handset: Handset) -> str:
    phone = handset.phone
    content = None if phone.focus is None else phone.app(phone.front).fields.get(phone.focus, "")
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
