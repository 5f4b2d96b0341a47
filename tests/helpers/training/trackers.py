"""Stand-ins for wandb, trackio and mlflow: packages that record what transformers' integrations call.

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
    kept = {{name: os.environ.get(name) for name in ("WANDB_RUN_ID", "MLFLOW_RUN_ID", "WANDB_LOG_MODEL")}}
    with open(os.environ["{RECORDED}"], "a") as file:
        file.write(json.dumps({{"call": call, "environment": kept, **values}}) + "\\n")
"""

_CONFIG = """
class Config(dict):
    def update(self, values, allow_val_change=False):
        record("config", config=values)

config = Config()
"""

_WANDB = """
run = None

def init(project, name):
    global run
    run = types.SimpleNamespace(_label=lambda code: None, summary={})
    record("start", project=project, run=os.environ["WANDB_RUN_ID"], resume=os.environ["WANDB_RESUME"])

def log(values):
    record("log", step=values["train/global_step"], values=values)

def finish():
    global run
    run = None
    record("finish")
"""

_TRACKIO = """
context_vars = types.SimpleNamespace(current_space_id=types.SimpleNamespace(get=lambda: None))

def init(project, name, resume, **others):
    record("start", project=project, run=name, resume=resume)

def log(values):
    record("log", step=values["train/global_step"], values=values)

def finish():
    record("finish")
"""

_MLFLOW = """
import secrets

limits = types.SimpleNamespace(MAX_PARAM_VAL_LENGTH=6000, MAX_PARAMS_TAGS_PER_BATCH=100)
utils = types.SimpleNamespace(validation=limits)
active = None

def is_tracking_uri_set():
    return True

def get_tracking_uri():
    return "nowhere"

def set_experiment(name):
    global project
    project = name

def active_run():
    return active

def start_run(run_name, nested):
    global active
    run = os.environ.get("MLFLOW_RUN_ID") or secrets.token_hex(16)
    active = types.SimpleNamespace(info=types.SimpleNamespace(run_id=run))
    record("start", project=project, run=run, resume="allow")

def log_params(values, synchronous):
    record("config", config=values)

def log_metrics(metrics, step, synchronous):
    record("log", step=step, values={f"train/{name}": value for name, value in metrics.items()})

def set_tags(tags):
    record("tags", tags=tags)

def end_run():
    global active
    active = None
    record("finish")
"""

_PACKAGES = {
    "wandb": {
        "__init__": _COMMON + _CONFIG + _WANDB,
        "sdk/lib/config_util": "class ConfigError(Exception):\n    pass\n",
    },
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
