"""A real Slurm cluster on this machine: munged, slurmctld and some slurmd, all of it in one folder.

Needs root, because each slurmd gets a host name and an /etc/hosts of its own, as if it were another machine; no
systemd, no cgroups, nothing under /etc/slurm. It ends with the process that started it, however that ends.
"""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "unshare", "setpriv")
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL"}
CPUS, GPUS, MEMORY = 8, 8, 8000
"""What a node says it has, whatever the machine has; the GPUs are /dev/null."""

_SECONDS_TO_START, _SECONDS_TO_STOP, _SECONDS_A_COMMAND = 20, 20, 60
_TICK, _TICK_OF_JOBS = 0.05, 0.5
"""Seconds between two looks. A look at jobs starts a client of Slurm, and the jobs need the cores themselves."""

# cred_expire: a requeued job waits for as long, two minutes without it. KillWait: seconds between SIGTERM and SIGKILL.
# MinJobAge: how long `scontrol show job` knows an ended job. ReturnToService: a node that is down stays down.
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=0
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=5
MinJobAge=3600
FirstJobId={first}
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP GraceTime=30
PartitionName=gpu Nodes=ALL MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def missing() -> list[str]:
    """What this machine lacks to run a cluster."""
    lacking = [program for program in NEEDED if shutil.which(program) is None]
    return lacking + ([] if os.geteuid() == 0 else ["root's rights"])


class Cluster:
    """`nodes` of them, ready for jobs within the block."""

    def __init__(self, folder: Path, nodes: Sequence[str] = ("node1", "node2")):
        self.folder, self.nodes = folder, tuple(nodes)
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen] = []

    def __enter__(self) -> "Cluster":
        try:
            self._start_munge()
            self._write_configuration()
            self._start("slurmctld", "-D")
            for node in self.nodes:
                self._start_node(node)
            soon(self._is_up, _SECONDS_TO_START, self._last_words)
        except BaseException:
            self._end_daemons()
            raise
        return self

    def __exit__(self, *error) -> None:
        # A job's processes outlive slurmd, so the jobs end first.
        try:
            self.cancel_all()
        finally:
            self._end_daemons()

    def run(self, *command: str | Path, check: bool = True, **options) -> subprocess.CompletedProcess:
        """A client's command, such as sbatch; with what it says in the error where it fails."""
        options = {"env": self.environment, "timeout": _SECONDS_A_COMMAND} | options
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
        assert not check or done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def job(self, number: int | str) -> dict[str, str]:
        """What `scontrol show job` tells of a job: key → value. Of an array, its first task's."""
        return self.tasks(number)[0]

    def tasks(self, number: int | str) -> list[dict[str, str]]:
        """The same of every task of an array."""
        lines = self.run("scontrol", "--oneliner", "show", "job", str(number)).stdout.splitlines()
        return [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines if line]

    def states(self, number: int | str) -> set[str]:
        """The states of a job's tasks: one, where it is no array."""
        return {task["JobState"] for task in self.tasks(number)}

    def wait_for(self, *numbers: int | str, seconds: float) -> list[set[str]]:
        """The states of jobs that have ended; fails, with what the queue says, where one does not."""
        for number in numbers:
            soon(partial(self._has_ended, number), seconds, self._queue, _TICK_OF_JOBS)
        return [self.states(number) for number in numbers]

    def _has_ended(self, number: int | str) -> bool:
        return self.states(number) <= ENDED

    def _queue(self) -> str:
        return self.run("squeue", "--long").stdout

    def cancel_all(self) -> None:
        self.run("scancel", "--user=root")
        soon(lambda: not self.run("squeue", "--noheader").stdout, _SECONDS_TO_STOP, self._last_words)

    def _start_munge(self) -> None:
        (self.folder / "munge").mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        files = {"key-file": key, "socket": "munge/socket", "pid-file": "munge/pid", "seed-file": "munge/seed"}
        files = {name: self.folder / path for name, path in files.items()} | {"log-file": self.folder / "munged.log"}
        # --force: it takes a folder under /tmp, which anybody may write to, for a danger to the key.
        self._start("munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in files.items()))
        soon((self.folder / "munge" / "socket").exists, _SECONDS_TO_START, self._last_words)

    def _write_configuration(self) -> None:
        (self.folder / "state").mkdir()
        control, *ports = _free_ports(1 + len(self.nodes))
        host = socket.gethostname().partition(".")[0]
        # A job's number is in its port (slurm/train.sbatch), and each test process has a cluster of its own.
        first = 1 + 1000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        text = _CONFIGURATION.format(host=host, port=control, folder=self.folder, first=first)
        size = f"CPUs={CPUS} Sockets=1 CoresPerSocket={CPUS} ThreadsPerCore=1 RealMemory={MEMORY} Gres=gpu:{GPUS}"
        for node, port in zip(self.nodes, ports, strict=True):
            text += f"NodeName={node} NodeHostname={node} NodeAddr=127.0.0.1 Port={port} {size}\n"
            (self.folder / f"spool-{node}").mkdir()
        (self.folder / "slurm.conf").write_text(text)
        # A GPU without a device file counts as none.
        for number in range(GPUS):
            (self.folder / f"gpu{number}").symlink_to("/dev/null")
        devices = f"{self.folder}/gpu[0-{GPUS - 1}]"
        (self.folder / "gres.conf").write_text("".join(f"NodeName={n} Name=gpu File={devices}\n" for n in self.nodes))
        addresses = "".join(f"127.0.0.1 {node}\n" for node in self.nodes)
        (self.folder / "hosts").write_text(Path("/etc/hosts").read_text() + addresses)

    def _start_node(self, node: str) -> None:
        own = 'mount --bind "$0/hosts" /etc/hosts && hostname "$1" && exec slurmd -D -N "$1"'
        self._start("unshare", "--mount", "--uts", "sh", "-c", own, str(self.folder), node)

    def _start(self, *command: str) -> None:
        with (self.folder / "daemons.log").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    ["setpriv", "--pdeathsig", "TERM", *command],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a Ctrl-C is for pytest, which ends them in order
                )
            )

    def _is_up(self) -> bool:
        dead = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
        assert not dead, f"ended at once: {dead}\n{self._last_words()}"
        nodes = self.run("scontrol", "--oneliner", "show", "nodes", check=False).stdout.splitlines()
        # A node that has not registered yet is called idle too.
        return sum("State=IDLE " in node and "SlurmdStartTime=None" not in node for node in nodes) == len(self.nodes)

    def _end_daemons(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(_SECONDS_TO_STOP)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _last_words(self) -> str:
        tails = (f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}" for path in self.folder.glob("*.log"))
        return "\n".join(tails)


def soon(condition: Callable[[], object], seconds: float, or_say: Callable[[], str], tick: float = _TICK) -> object:
    """What the condition gives when it is true, as it has to be within `seconds`."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"not within {seconds} s; {or_say()}"
        time.sleep(tick)
    return result


def _free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at; different ones."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
