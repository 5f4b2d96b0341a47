"""Small programs about the system: `date`, `sleep`, `id`, `ip`, `ifconfig`."""

import time

from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.shell.session import Call, Result, ToolError, output

_USUAL_DATE = "%a %b %e %H:%M:%S %Z %Y"

_LONGEST_SLEEP = 1e6

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def date(handset: Handset, call: Call) -> Result:
    """`date [-u] [+FORMAT]`, in UTC."""
    words = [word for word in call.words if word != "-u"]
    if len(words) > 1 or not all(word.startswith("+") for word in words):
        raise ToolError("date: the simulated phone offers date [+FORMAT]")
    form = words[0][1:] if words else _USUAL_DATE
    seconds = handset.now()
    form = form.replace("%s", str(int(seconds))).replace("%N", f"{seconds % 1:.9f}"[2:]).replace("%Z", "UTC")
    return output(time.strftime(form, time.gmtime(seconds)))


def sleep(handset: Handset, call: Call) -> Result:
    """`sleep SECONDS`: advances the phone's clock and returns at once, because nothing on this phone needs time."""
    try:
        seconds = sum(float(word.rstrip("smhd")) * _UNITS.get(word[-1:], 1.0) for word in call.words)
    except ValueError:
        raise ToolError(f"sleep: bad number {' '.join(call.words)!r}") from None
    if not call.words or not 0 <= seconds <= _LONGEST_SLEEP:
        raise ToolError("sleep: needs a number of seconds")
    handset.slept += seconds
    return Result()


def id_(handset: Handset, call: Call) -> Result:
    if call.words == ["-u"]:
        return output("2000")
    if call.words:
        raise ToolError("id: the simulated phone offers id [-u]")
    return output("uid=2000(shell) gid=2000(shell) groups=2000(shell) context=u:r:shell:s0")


def ip(handset: Handset, call: Call) -> Result:
    """`ip addr [show [dev] wlan0]` and `ip route`. The phone is only reachable at this machine's loopback address."""
    match [word for word in call.words if word not in ("show", "dev", "-f", "inet", "-4")]:
        case ["addr" | "a" | "address"] | ["addr" | "a" | "address", "wlan0"]:
            return output(
                "2: wlan0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP\n    inet 127.0.0.1/8 scope host wlan0"
            )
        case ["route"] | ["route", "wlan0"]:
            return output("127.0.0.0/8 dev wlan0 proto kernel scope link src 127.0.0.1")
        case ["addr" | "a" | "address", name]:
            raise ToolError(f'Device "{name}" does not exist.')
    raise ToolError("ip: the simulated phone offers ip addr [show wlan0] and ip route")


def ifconfig(handset: Handset, call: Call) -> Result:
    if call.words not in ([], ["wlan0"]):
        raise ToolError(f"ifconfig: {' '.join(call.words)}: No such device")
    return output("wlan0     Link encap:Ethernet\n          inet addr:127.0.0.1  Mask:255.0.0.0\n          UP RUNNING")
