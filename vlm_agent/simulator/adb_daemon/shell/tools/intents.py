"""The words of `am` that describe an intent (Android, `Intent.parseCommandArgs`)."""

from dataclasses import dataclass, field

from vlm_agent.simulator.adb_daemon.shell.session import ToolError

_WITH_VALUE = {"-a": "action", "-d": "data", "-n": "component", "-p": "package", "-t": "type"}
_IGNORED_WITH_VALUE = ("-f", "--user", "--display", "--windowingMode")
_EXTRAS = ("--es", "-e", "--ei", "--ez", "--el", "--ef", "--eia", "--esa", "--eu")
_FLAGS = ("-W", "-S")


@dataclass
class Intent:
    """`extras`: (option, key) → value, such as ("--es", "msg"). `flags`: -W (wait) and -S (stop first)."""

    action: str = ""
    data: str = ""
    component: str = ""
    package: str = ""
    type: str = ""
    categories: list[str] = field(default_factory=list)
    extras: dict[tuple[str, str], str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        """The intent as `am` prints it."""
        parts = [("act", self.action), ("cat", f"[{','.join(self.categories)}]" if self.categories else "")]
        parts += [("dat", self.data), ("typ", self.type), ("pkg", self.package), ("cmp", self.component)]
        text = " ".join(f"{name}={value}" for name, value in parts if value)
        return f"Intent {{ {text}{' (has extras)' if self.extras else ''} }}"


def read_intent(words: list[str]) -> Intent:
    """Raises ToolError for an unknown option or a missing value."""
    intent, rest = Intent(), list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            _read_option(intent, word, rest)
        else:
            setattr(intent, "data" if ":" in word else "component" if "/" in word else "package", word)
    return intent


def _read_option(intent: Intent, option: str, rest: list[str]) -> None:
    """Removes the values of `option` from `rest`."""

    def value() -> str:
        if not rest:
            raise ToolError(f"Error: Argument expected after {option!r}", 255)
        return rest.pop(0)

    if option in _WITH_VALUE:
        setattr(intent, _WITH_VALUE[option], value())
    elif option == "-c":
        intent.categories.append(value())
    elif option in _EXTRAS:
        key = value()
        intent.extras["--es" if option == "-e" else option, key] = value()
    elif option in _FLAGS:
        intent.flags.add(option)
    elif option in _IGNORED_WITH_VALUE:
        value()
    else:
        raise ToolError(f"Error: Unknown option: {option}", 255)
