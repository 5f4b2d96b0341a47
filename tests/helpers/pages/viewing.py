"""The pages of `vlm-agent view`, served in a thread."""

from contextlib import AbstractContextManager
from pathlib import Path

from helpers.pages.served_pages import served
from rich.console import Console

from vlm_agent.agents.scripted import ScriptedSettings
from vlm_agent.evaluation.viewing.asking import Asking
from vlm_agent.evaluation.viewing.server import ViewServer


def viewing(output: Path, asking: Asking | None = None) -> AbstractContextManager[ViewServer]:
    return served(ViewServer(output, asking))


def scripted(action: str) -> Asking:
    """An agent whose answer is always `action`, in its language."""
    return Asking(ScriptedSettings(actions=[action]), Console(quiet=True))
