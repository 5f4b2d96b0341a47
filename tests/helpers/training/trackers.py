"""Stand-ins for wandb, trackio and mlflow: packages that record what the run calls.

The real ones are not among the tested packages: trackio excludes the tested Pillow, and wandb and mlflow bring many
packages of their own. `docs/training.md` names the releases that were tried.
"""

import json
from pathlib import Path

RECORDED = "TRACKED_CALLS"
"""The environment variable that names the file of the recorded calls, one JSON line each."""

_COMMON = f"""
import json, os, types

__version__ = "99.0"

def record(call, **values):
    with open(os.environ["{RECORDED}"], "a") as file:
        file.write(json.dumps({{"call": call, **values}}) + "\\n")
"""

_CONFIG = """
class Config(dict):
    def update(self, values, allow_val_change=False):
        record("config", config=values)

config = Config()
"""

_WANDB = """
def init(project, id, name, resume):
    assert os.environ["WANDB_DISABLE_GIT"] == os.environ["WANDB_DISABLE_CODE"] == "true"
    record("start", project=project, run=id, resume=resume)

def define_metric(name, step_metric=None, step_sync=None):
    assert name == "train/global_step" or step_metric == "train/global_step"

def log(values):
    record("log", step=values["train/global_step"], values=values)

def finish():
    record("finish")
"""

_TRACKIO = """
def init(project, name, resume):
    record("start", project=project, run=name, resume=resume)

def log(values):
    record("log", step=values["train/global_step"], values=values)

def finish():
    record("finish")
"""

_MLFLOW = """
import secrets

def set_experiment(name):
    global project
    project = name

def start_run(run_id, run_name):
    run = run_id or os.environ.get("MLFLOW_RUN_ID") or secrets.token_hex(16)
    record("start", project=project, run=run, resume="allow")
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run))

def log_params(values, synchronous):
    assert len(values) <= 100
    record("config", config=values)

def log_metrics(metrics, step, synchronous):
    record("log", step=step, values={f"train/{name}": value for name, value in metrics.items()})

def set_tags(tags):
    record("tags", tags=tags)

def end_run():
    record("finish")
"""

_PACKAGES = {
    "wandb": {"__init__": _COMMON + _CONFIG + _WANDB},
    "trackio": {"__init__": _COMMON + _CONFIG + _TRACKIO},
    "mlflow": {"__init__": _COMMON + _MLFLOW},
}


def install(monkeypatch, folder: Path, name: str) -> None:
    """Puts the stand-in before all other packages; `calls` reads what it has recorded."""
    for module, code in _PACKAGES[name].items():
        path = folder / "packages" / name / f"{module}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    monkeypatch.setenv(RECORDED, str(folder / "calls.jsonl"))
    monkeypatch.syspath_prepend(folder / "packages")


def calls(folder: Path, call: str) -> list[dict]:
    """In their order."""
    lines = (json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines())
    return [line for line in lines if line["call"] == call]
