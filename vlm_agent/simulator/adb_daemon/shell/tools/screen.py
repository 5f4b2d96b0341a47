"""`screencap`, `wm`, `cmd statusbar` and `getevent`: the screen itself."""

import numpy as np

from vlm_agent.episodes import Action
from vlm_agent.files.png import encode_png
from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.fingers import listing
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError, output
from vlm_agent.simulator.adb_daemon.shell.tools.options import short_options
from vlm_agent.simulator.adb_daemon.shell.tools.settings import DENSITY, DISPLAY

_RGBA_8888, _SRGB = 1, 1

_LARGEST_SIDE, _SMALLEST_SIDE = 4096, 64

_TOP, _MIDDLE = (0.005, 0.5), (0.6, 0.5)


def screencap(handset: Handset, call: Call) -> Result:
    """`screencap [-p] [-d 0] [FILE]`: PNG with `-p` or a file `.png`, else a header of 16 bytes and RGBA."""
    options, paths = short_options("screencap", call.words, "pd:")
    if options.get("-d", str(DISPLAY)) != str(DISPLAY):
        raise ToolError(f"Display Id '{options['-d']}' is not valid.")
    if len(paths) > 1:
        raise ToolError("Error: screencap writes one file")
    phone = handset.phone
    pixels = phone.screenshot() if handset.is_awake else np.zeros((*phone.size, 3), np.uint8)
    is_png = "-p" in options or (bool(paths) and paths[0].endswith(".png"))
    data = encode_png(pixels) if is_png else _raw(pixels)
    if not paths:
        return Result(data)
    handset.files.write(paths[0], data)
    return Result()


def _raw(pixels: np.ndarray) -> bytes:
    """Width, height, format and colour space as little-endian 32-bit numbers, and RGBA."""
    height, width = pixels.shape[:2]
    opaque = np.full((height, width, 1), 255, np.uint8)
    header = np.array([width, height, _RGBA_8888, _SRGB], "<u4")
    return header.tobytes() + np.concatenate([pixels, opaque], axis=2).tobytes()


def wm(handset: Handset, call: Call) -> Result:
    """`wm size [WIDTHxHEIGHT|reset]` and `wm density`."""
    match call.words:
        case ["size"]:
            return output("\n".join(_sizes(handset)))
        case ["size", "reset"]:
            _resize(handset, handset.physical_size)
            return Result()
        case ["size", text]:
            _resize(handset, _read_size(text))
            return Result()
        case ["density"] | ["density", "reset"]:
            return output(f"Physical density: {DENSITY}") if len(call.words) == 1 else Result()
        case ["density", text]:
            raise ToolError(f"Error: the density of the simulated phone is always {DENSITY}, not {text}")
    raise ToolError("Error: the simulated phone offers wm size [WIDTHxHEIGHT|reset] and wm density")


def _sizes(handset: Handset) -> list[str]:
    named = {"Physical": handset.physical_size, "Override": handset.phone.size}
    is_usual = handset.phone.size == handset.physical_size
    return [f"{name} size: {w}x{h}" for name, (h, w) in named.items() if name == "Physical" or not is_usual]


def _read_size(text: str) -> tuple[int, int]:
    """(height, width) of `WIDTHxHEIGHT`."""
    width, _, height = text.partition("x")
    if not all(one.isascii() and one.isdecimal() and len(one) < 6 for one in (width, height)):
        raise ToolError(f"Error: bad size {text}")
    size = int(height), int(width)
    if min(size) < _SMALLEST_SIDE or max(size) > _LARGEST_SIDE:
        raise ToolError(f"Error: a side of the simulated phone has {_SMALLEST_SIDE} to {_LARGEST_SIDE} pixels")
    return size


def _resize(handset: Handset, size: tuple[int, int]) -> None:
    handset.phone.size = size
    handset.phone.changed()


def statusbar(handset: Handset, call: Call) -> Result:
    """`cmd statusbar expand-notifications|expand-settings|collapse`, as a finger does it."""
    is_open = {"collapse": False, "expand-notifications": True, "expand-settings": True}
    if len(call.words) != 1 or call.words[0] not in is_open:
        raise ToolError(f"Error: the simulated phone offers cmd statusbar {'|'.join(is_open)}")
    wanted = is_open[call.words[0]]
    if handset.phone.shade != wanted:
        handset.perform(Action.swipe(*((_TOP, _MIDDLE) if wanted else (_MIDDLE, _TOP))))
    if handset.phone.shade != wanted:
        raise ToolError("Error: quick settings of the simulated phone do not open now")
    return Result()


def getevent(handset: Handset, call: Call) -> Result:
    """`getevent -lp`; the server itself prints events (`getevent -lt`)."""
    if call.words != ["-lp"]:
        raise ToolError("Error: the simulated phone offers getevent -lp, and getevent -lt alone in its line")
    return output(listing(handset))
