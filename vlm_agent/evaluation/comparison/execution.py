"""Runs one stage: its agent file, the served model beside it, its output, its record.

PyTorch is imported only by the stages that ask it something: a job per stage imports it once, in the stage's command.
"""

import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from rich.console import Console

from vlm_agent.agents import AGENTS
from vlm_agent.errors import Stopped
from vlm_agent.evaluation.comparison.records import Records
from vlm_agent.evaluation.comparison.settings import ComparisonError, Endpoint
from vlm_agent.evaluation.comparison.stages import TRAIN, Stage, Stages
from vlm_agent.files import atomic_write
from vlm_agent.files.console import print_plain
from vlm_agent.files.peak_memory import PeakMemory
from vlm_agent.recipe.yaml_file import find_shipped, read_mapping, set_keys

_INTERRUPTED = 130
"""The status of a command after Ctrl-C."""

_NOT_SERVED = 1
"""The status of a stage whose server does not start."""

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""The signals that Slurm sends to a job that it ends."""


@dataclass
class Runner:
    """Runs stages of a comparison, and serves one run at a time, from the first stage that needs it to the end of the
    block.

    After SIGTERM or SIGUSR1 the block raises Stopped. The command of a stage gets SIGTERM: training saves and ends; all
    others end at once, because they can be killed at any time.
    """

    stages: Stages
    records: Records
    console: Console
    _served: Path | str | None = None
    _endpoint: Endpoint | None = None
    _server: ExitStack = field(default_factory=ExitStack)
    _process: subprocess.Popen | None = None
    _received: signal.Signals | None = None
    _handlers: dict[int, Any] = field(default_factory=dict)

    def __enter__(self) -> "Runner":
        self._handlers = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for ignored in _SIGNALS:
            signal.signal(ignored, signal.SIG_IGN)
        self._server.close()
        if self._received is None:  # or they stay ignored: a repeated one must not replace the exit status
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        is_first, self._received = self._received is None, signal.Signals(number)
        if self._process is None:
            self._raise_stopped()
        elif is_first:  # `slurm/common.sh` repeats it; one is enough for every stage
            self._process.terminate()

    def _raise_stopped(self) -> None:
        if self._received is not None:
            raise Stopped(f"stopped by {self._received.name}; run the same command again to resume")

    def run(self, stage: Stage, about: str = "") -> int:
        """Prints the stage's command, after `about`, runs it and returns its status. The caller must hold the stage.

        Raises Stopped after a signal unless the command has succeeded, and KeyboardInterrupt after Ctrl-C.
        """
        self._raise_stopped()
        if stage.anew is not None and self.records.was_started(stage) and stage.anew.exists():
            shutil.rmtree(stage.anew)
        if stage.served is not None and not self._serve(stage, stage.served):
            return _NOT_SERVED
        if stage.prompts:
            self._write_agent_file(stage)
        return self._run(stage, about)

    def _serve(self, stage: Stage, what: Path | str) -> bool:
        """Whether the run is served, or the command serves. If the server does not start, the stage has failed, and
        others may still run."""
        from vlm_agent.models.serving import ServingError, is_ready, served_by, served_model

        if what == self._served and self._endpoint is not None and is_ready(self._endpoint.url):
            return True

        self._server.close()
        self._served = None
        log, began = self.records.log(stage).with_suffix(".server.log"), time.monotonic()
        own = self.stages.endpoint
        try:
            if own is None:
                self._endpoint = Endpoint(*self._server.enter_context(served_model(Path(what), log)))
            else:
                self._endpoint = replace(own, url=self._server.enter_context(served_by(own.command, log)))
        except ServingError as error:
            print_plain(self.console, f"{stage.name}: {error}")
            with self.records.log(stage).open("ab") as file:  # its folder has the log of the server
                file.write(f"{error}\n".encode())
            self.records.add(stage, command=f"transformers serve {what}" if own is None else own.command)
            self.records.add(stage, status=_NOT_SERVED, seconds=round(time.monotonic() - began, 1), peak_gb=0.0)
            return False
        self._served = what
        return True

    def _write_agent_file(self, stage: Stage) -> None:
        """The agent file of the comparison with its overrides and, where a model is served, its address. A server has
        another address each time; it is not part of the identity of an agent."""
        agent = self.stages.comparison.agents[stage.prompts]
        if agent.agent is None:
            raise AssertionError(f"the stage {stage.name} prompts an agent without an agent file")
        content = read_mapping(find_shipped(agent.agent), ComparisonError)
        set_keys(AGENTS[content["agent"]], content, self.stages.overrides_of(agent), ComparisonError)
        endpoint = self.stages.endpoint if stage.served is None else self._endpoint
        if agent.served and endpoint is not None:
            content |= {"endpoint": endpoint.url, "model": endpoint.model}
        with atomic_write(self.stages.layout.agent_file(stage.name)) as part:
            part.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")

    def _run(self, stage: Stage, about: str) -> int:
        words = _words(stage)
        shown = shlex.join(["vlm-agent", *words])
        print_plain(self.console, f"{about}$ {shown}")
        self.records.add(stage, command=shown)
        several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={stage.gpus}"]
        several += ["--shutdown-timeout", "180"]  # seconds to save after SIGTERM
        launcher = several if stage.kind == TRAIN and stage.gpus > 1 else []
        command = [sys.executable, *launcher, "-m", "vlm_agent.cli", *words]
        log = self.records.log(stage)
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        try:
            with PeakMemory() as memory, log.open("ab") as file:
                self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # noqa: S603
                for line in self._process.stdout or ():
                    file.write(line)
                    file.flush()
                    sys.stdout.buffer.write(line)
                    sys.stdout.flush()
                status = self._process.wait()
            seconds = round(time.monotonic() - began, 1)
            self.records.add(stage, status=status, seconds=seconds, peak_gb=round(memory.peak / 1e9, 2))
        except BaseException:
            if self._process is not None:
                self._process.terminate()
                self._process.wait()
            raise
        finally:
            self._process = None  # from here on a signal raises, so the status is recorded before
        if status == _INTERRUPTED:
            raise KeyboardInterrupt
        if status:
            self._raise_stopped()
        return status


def _words(stage: Stage) -> list[str]:
    if not stage.bf16:
        return [*stage.words]
    from vlm_agent.models.weights.precision import has_bf16

    return [*stage.words, *(["--agent.bf16", "true"] if has_bf16() else [])]
