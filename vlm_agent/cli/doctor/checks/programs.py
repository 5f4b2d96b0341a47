"""Programs and packages beside PyTorch: each check starts one, or asks it something."""

import io
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from vlm_agent.cli.doctor.check import AbsentError, BrokenError, Check, one_line, output_of, require_package
from vlm_agent.files.installation import install_line
from vlm_agent.models.serving import free_port, is_ready

if TYPE_CHECKING:
    from vlm_agent.devices.adb.discovery import ServerAddress


_CLIENTS = ("sbatch", "srun", "squeue", "sinfo")


def _slurm() -> str:
    missing = [program for program in _CLIENTS if shutil.which(program) is None]
    if missing:
        raise AbsentError(f"not on the path: {', '.join(missing)}")
    printed = output_of(["sinfo", "--noheader", "--format=%R|%a|%D"])
    rows = [line.split("|") for line in printed.splitlines() if line.strip()]
    if not rows or any(len(row) != 3 or not row[2].strip().isdigit() for row in rows):
        raise BrokenError(f"sinfo does not list partitions; it prints {one_line(printed)!r}")
    up = {name.strip(): int(nodes) for name, state, nodes in rows if state.strip() == "up"}
    if not up:
        raise BrokenError(f"no partition is up: {', '.join(sorted({row[0].strip() for row in rows}))}")
    return ", ".join(f"{name} ({nodes} nodes)" for name, nodes in up.items())


SLURM = Check(
    _slurm,
    "`sinfo`: the controller lists its partitions",
    ("slurm/pipeline.sh", "slurm/*.sbatch"),
    "run on a login node of the cluster; `sinfo` must list partitions there",
)


_ANSWER_SECONDS = 10.0


def _adb() -> str:
    import adbutils

    from vlm_agent.devices.adb.discovery import server_address, start_server, states

    program = adbutils.adb_path()
    printed = output_of([program, "version"])
    version = re.search(r"^Android Debug Bridge version (\S+)", printed, re.MULTILINE)
    if version is None:
        raise BrokenError(f"`{program} version` prints no version of adb, but {one_line(printed)!r}")
    was_running = _listens(server_address(os.environ))
    client = start_server(_ANSWER_SECONDS)
    try:
        phones = states(client)
    finally:
        if not was_running:
            client.server_kill()
    listed = ", ".join(f"{serial}: {state}" for serial, state in phones.items())
    return f"adb {version[1]} ({program}), {len(phones)} phone(s){': ' if phones else ''}{listed}"


def _listens(server: "ServerAddress") -> bool:
    try:
        socket.create_connection((server.host, server.port), timeout=_ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


ADB = Check(
    _adb,
    "`adb version`, start of its server (stopped again if it did not run before), list of its phones",
    ("act and record with --device adb",),
    "apt-get install adb, and then `adb devices`",
)


_COLOUR = (18, 52, 86)


def _chromium() -> str:
    require_package("playwright")
    from PIL import Image

    from vlm_agent.devices.browser.chromium import NoBrowserError, chromium, find_chromium

    try:
        program = find_chromium()
    except NoBrowserError as error:
        raise AbsentError(str(error), "apt-get install chromium, or CHROMIUM=/path/to/chrome") from error
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 64, "height": 64})
        page.set_content(f"<body style='background: rgb{_COLOUR}'>")
        with Image.open(io.BytesIO(page.screenshot())) as picture:
            pixel = picture.convert("RGB").getpixel((32, 32))
        if pixel != _COLOUR:
            raise BrokenError(f"{program} renders a page of colour {_COLOUR} as {pixel}")
        return f"Chromium {browser.version} ({program})"


CHROMIUM = Check(
    _chromium,
    "renders a page and compares a pixel",
    ("act --device browser:…",),
    f"{install_line('browser')} and apt-get install chromium; `chromium --version` must work",
)


_WORD = "Settings"


def _ocr() -> str:
    from importlib.metadata import version

    from vlm_agent.screens.text import PACKAGES, RapidOcrSettings

    for package in PACKAGES:
        require_package(package)
    import font_roboto
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (360, 160), "white")
    font = ImageFont.truetype(font_roboto.font_files["Roboto"], 40)
    ImageDraw.Draw(picture).text((60, 50), _WORD, fill="black", font=font)
    found = [text.text for text in RapidOcrSettings().load().read(np.asarray(picture))]
    if found != [_WORD]:
        raise BrokenError(f"a picture of the word {_WORD!r} is read as {found}")
    return f"RapidOCR {version('rapidocr')}"


OCR = Check(
    _ocr,
    "reads a drawn word",
    ("inspect --screen", "act and evaluate with --elements read", "VisionTasker"),
    install_line("screens"),
)


# torchvision's wheel for CUDA cannot be imported beside PyTorch for CPUs without the operators that this declares.
_SERVER = "import vlm_agent.models; from transformers.cli.transformers import main; main()"
_RETRY_SECONDS = 0.2


def _serving() -> str:
    from importlib.metadata import version

    for package in ("transformers", "fastapi", "uvicorn"):
        require_package(package)
    port = free_port()
    command = [sys.executable, "-c", _SERVER, "serve", "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    server = subprocess.Popen(command, env=os.environ | {"HF_HUB_OFFLINE": "1"})  # noqa: S603 (our own interpreter)
    try:
        while not is_ready(f"http://127.0.0.1:{port}/v1"):
            if server.poll() is not None:
                raise BrokenError(f"`transformers serve` ends with status {server.returncode}")
            time.sleep(_RETRY_SECONDS)
    finally:
        server.kill()
        server.wait()
    return f"transformers {version('transformers')} with FastAPI {version('fastapi')}"


SERVING = Check(
    _serving,
    "starts `transformers serve` on loopback until it is ready",
    ("`transformers serve RUN/model` for evaluate, act and annotate with --endpoint",),
    install_line("serving"),
)


def _variants() -> str:
    from vlm_agent.action_languages import LANGUAGES
    from vlm_agent.agents import AGENTS
    from vlm_agent.datasets.sources.registry import SOURCES
    from vlm_agent.devices import DEVICES
    from vlm_agent.devices.task_sets import TASK_SETS
    from vlm_agent.models.family import FAMILIES

    found = []
    for registry in (AGENTS, LANGUAGES, SOURCES, FAMILIES, DEVICES, TASK_SETS):
        for name in registry.plugins():
            registry[name]
            found.append(f"{name} ({registry.group.removeprefix('vlm_agent.')})")
    if not found:
        raise AbsentError("no installed package has entry points of vlm-agent")
    return ", ".join(found)


VARIANTS = Check(
    _variants,
    "imports every agent, action language, source, model family, device and task set of other packages",
    ("agent files", "recipes", "convert --source", "act --device"),
    "CONTRIBUTING.md of the repository describes how a package adds one",
)
