"""Where a user submits from: a folder with a copy of slurm/ and an edited site.sh."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from helpers.slurm.cluster import Cluster

REPOSITORY = Path(__file__).resolve().parents[3]

SMALL = {
    "GPUS_PER_NODE": 0,
    "CPUS_PER_GPU": 1,
    "TRAIN_MEMORY": "1G",
    "CONVERT_MEMORY": "1G",
    "EVALUATE_MEMORY": "1G",
    "CONVERT_CPUS": 1,
    "CONVERT_TASKS": 2,
    "CONVERT_AT_ONCE": 2,
    "FEATURES_TASKS": 2,
    "FEATURES_AT_ONCE": 2,
    "FEATURES_MEMORY": "1G",
    "EVALUATE_TASKS": 1,
    "EVALUATE_AT_ONCE": 1,
    "VENV": "environment",
    "NETWORK_INTERFACE": "lo",
    "CPU_PARTITION": "cpu",
    "GPU_PARTITION": "gpu",
}
"""The settings of the test's cluster. Its nodes are this machine, which has only its loopback to meet itself."""


class Workplace:
    """Commands run in `folder`, as a user types them there."""

    def __init__(self, folder: Path, cluster: Cluster | None = None):
        self.folder, self.cluster = folder, cluster
        shutil.copytree(REPOSITORY / "slurm", folder / "slurm", ignore=lambda path, names: _logs(path, names))
        self.set(**SMALL)
        self.install("vlm-agent", f'exec {shlex.quote(sys.executable)} -m vlm_agent.cli "$@"\n')
        activate = (
            f"PATH={shlex.quote(f'{folder}/environment/bin')}:{shlex.quote(str(Path(sys.executable).parent))}:$PATH\n"
        )
        (folder / "environment" / "bin" / "activate").write_text(activate)

    def set(self, **settings: object) -> None:
        """Edits site.sh."""
        lines = (f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items())
        with (self.folder / "slurm" / "site.sh").open("a") as file:
            file.writelines(lines)

    def install(self, name: str, script: str, interpreter: str = "/usr/bin/env bash") -> None:
        """A program of the environment."""
        path = self.folder / "environment" / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{interpreter}\n{script}")
        path.chmod(0o755)

    def run(self, *command: object, check: bool = True) -> str:
        """Gives both outputs of a command."""
        return _both(self.cluster.run(*map(str, command), check=check, cwd=self.folder))

    def submit(self, *words: object) -> str:
        """Returns the number of the job."""
        return self.cluster.run("sbatch", "--parsable", *map(str, words), cwd=self.folder).stdout.strip()

    def pipeline(self, *words: object) -> dict[str, str]:
        """Returns the number of each job by name."""
        lines = self.run("slurm/pipeline.sh", *words).splitlines()
        return dict(line.split() for line in lines if len(line.split()) == 2)

    def pipeline_alone(self, *words: object) -> subprocess.CompletedProcess:
        """pipeline.sh on a machine without Slurm."""
        command = ["slurm/pipeline.sh", *map(str, words)]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300)

    def log(self, name: str, job: str) -> str:
        """The output of a job."""
        path = self.folder / "slurm" / "logs" / f"{name}-{job}.out"
        return path.read_text() if path.exists() else ""


def _logs(path: str, names: list[str]) -> list[str]:
    return [name for name in names if name != ".gitignore"] if Path(path).name == "logs" else []


def _both(done: subprocess.CompletedProcess) -> str:
    return done.stdout + done.stderr
