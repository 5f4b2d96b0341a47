"""The keyboard of the person who supervises an agent: q stops it, y confirms."""

import os
import select
import sys
import termios
import tty

from vlm_agent.files.console import say


class Keys:
    """Reads single keys from the terminal; a context manager.

    If standard input is not a terminal, each question reads a line, and only a signal stops the agent. `is_stopped`:
    whether q was the answer to a question.
    """

    is_stopped = False

    def __enter__(self) -> "Keys":
        self._terminal = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        if self._terminal is not None:
            self._before = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal)
        return self

    def __exit__(self, *error) -> None:
        if self._terminal is not None:
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)

    def wants_stop(self) -> bool:
        """Whether q was pressed since the last call."""
        pressed = b""
        while self._terminal is not None and select.select([self._terminal], [], [], 0)[0]:
            key = os.read(self._terminal, 64)
            if not key:
                break
            pressed += key
        return b"q" in pressed.lower()

    def agrees(self, question: str) -> bool:
        """Asks the question and returns whether the answer is y. Keys typed before the question are discarded."""
        say(f"     {question} [y/N/q] ", end="")
        if self._terminal is None:
            answer = "" if sys.stdin is None else sys.stdin.readline()
            say()
            return self._means_yes(answer.strip())
        termios.tcflush(self._terminal, termios.TCIFLUSH)
        key = os.read(self._terminal, 1).decode(errors="replace")
        say(key if key.isprintable() else "")
        return self._means_yes(key)

    def _means_yes(self, answer: str) -> bool:
        self.is_stopped |= answer.casefold() in ("q", "quit")
        return answer.casefold() in ("y", "yes")
