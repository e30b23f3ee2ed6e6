"""A real SLURM cluster on one machine, made to be thrown away: nodes that can fail, GPUs that are pretended.

It needs Debian's packages slurm-wlm and munge, and for accounting slurmdbd and mariadb-server. Every daemon listens on
127.0.0.1 or on a socket in the cluster's directory, and dies with the process that holds the cluster.
"""

import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Self, final

HERE = Path(__file__).parent
PROGRAMS = (
    *("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue"),
    *("slurmdbd", "sacctmgr", "sacct", "mariadbd", "mariadb", "mariadb-install-db"),
)
PACKAGES = "slurm-wlm slurmdbd munge mariadb-server"
GPU_TYPE = "toy"
PATIENCE_S = 150.0
"""Seconds of a wait before the cluster counts as broken; on an idle machine, every wait takes less than a fifth."""

ACCOUNTS = (
    "add cluster toy",
    "add account research Organization=toy Description=unlimited",
    "add account small Organization=toy Description=limited",
    "add qos few set MaxSubmitJobsPerUser=3",
    "add user {user} account=research DefaultAccount=research QOS=normal,few",
    "add user {user} account=small MaxSubmitJobs=4",
)


class ClusterBroken(Exception):
    """A daemon ended, or what was waited for did not come."""


def missing() -> list[str]:
    """The programs that a cluster needs and this machine does not have."""
    return [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
    """Return soon after `condition` holds; `ClusterBroken` if it does not within `seconds`.

    Most conditions start a process. The pauses are longer than the looks, so that what is waited for has the cores.
    """
    end = time.monotonic() + seconds
    began = time.monotonic()
    while not condition():
        now = time.monotonic()
        if now > end:
            raise ClusterBroken(f"waited {seconds:.0f} s for {what}")
        time.sleep(min(max(0.05, 4 * (now - began)), 1.0))
        began = time.monotonic()


@final
@dataclass(frozen=True)
class Shape:
    """How large a cluster is, and what of its configuration differs (`settings`: keys of slurm.conf)."""

    nodes: int = 2
    gpus: int = 2
    gpu_types: tuple[str, ...] = (GPU_TYPE,)
    """Types of the nodes' GPUs, in turn."""
    cpus: int = 2
    max_array: int = 1001
    accounting: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)


@final
class Machine:
    """A daemon with all that it starts, under a host name of its own (see host.py)."""

    def __init__(self, name: str, root: Path, command: list[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._log = root / "log" / f"{name}.out"
        script = [sys.executable, "-I", str(HERE / "host.py")]
        host = name if name.startswith("n") else "controller"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*script, host, str(root / "hosts"), *command],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        """The end of what the daemon printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-500:].strip()

    def cut(self) -> None:
        """A power cut: nothing of it runs when this returns."""
        if self.runs:
            self._process.send_signal(signal.SIGUSR1)
        self._process.wait()

    def end(self) -> None:
        """Ask the daemon to end, wait, and cut what stays."""
        if self.runs:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.cut()


@final
class Cluster:
    """A running cluster as a context manager; `environment` is what its clients export.

    Its nodes are n1, n2, ...; its partitions debug (default), short (at most 5 minutes), preempt, and urgent, whose
    jobs requeue those of preempt. With accounting there are the accounts research and small (at most 4 jobs) and the
    QOS few (at most 3 jobs per user). A directory that is not named is deleted at the end.
    """

    def __init__(self, shape: Shape | None = None, root: Path | None = None) -> None:
        self.shape = shape or Shape()
        self._temporary = root is None
        self.root = (root or Path(tempfile.mkdtemp(prefix="toy-cluster-"))).resolve()
        if len(str(self.root / "run" / "mariadb")) > 100:
            raise ClusterBroken(f"a socket's path has at most 107 characters; {self.root} is too long for a cluster")
        self._machines: dict[str, Machine] = {}
        self._ports: list[int] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.shape.nodes + 1))

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.root / "slurm.conf")}

    def submit(self, script: str, *options: str) -> int:
        """Queue a batch script (its text after the first line); returns the job id."""
        return int(self.run("sbatch", "--parsable", *options, "--wrap", script).split(";")[0])

    def run(self, *command: str, check: bool = True) -> str:
        """The output of a client of this cluster; `ClusterBroken` with what it said when it fails and `check`."""
        result = subprocess.run(command, env=self._environ(), capture_output=True, text=True, check=False, timeout=60)
        if check and result.returncode:
            raise ClusterBroken(f"{' '.join(command)}: {result.stderr.strip() or result.stdout.strip()}")
        return result.stdout

    def start(self) -> None:
        """Start every daemon; returns when all nodes are idle."""
        for folder in ("run", "log", "state", "spool", "mariadb", "dev"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o711)  # munge wants to be reached, and nobody else to write
        names = ("controller", *self.nodes)
        (self.root / "hosts").write_text("127.0.0.1 localhost " + " ".join(names) + "\n", encoding="utf-8")
        self._ports = free_ports(2 + self.shape.nodes)
        self._configure()
        self._start_munge()
        if self.shape.accounting:
            self._start_accounting()
        self._start_controller()
        for node in self.nodes:
            self._start_node(node)
        self._until(lambda: all(self.state(node) == "idle" for node in self.nodes), "all nodes to be idle")

    def stop(self) -> None:
        """Stop everything, jobs included; nothing of the cluster runs when this returns."""
        for name in [*self.nodes, "slurmctld", "slurmdbd", "mariadbd", "munged"]:
            if machine := self._machines.pop(name, None):
                machine.cut()
        if self._temporary:
            shutil.rmtree(self.root, ignore_errors=True)

    def fail(self, node: str) -> None:
        """A power cut of `node`: nothing of it runs or writes any more when this returns."""
        self._machines[node].cut()

    def heal(self, node: str) -> None:
        """Switch `node` on again; returns when it takes jobs."""
        if not self._machines[node].runs:
            self._start_node(node)
        self._until(lambda: self.state(node) in {"idle", "mix", "alloc"}, f"{node} to return")

    @contextmanager
    def without_controller(self) -> Iterator[None]:
        """Stop slurmctld as its administrator would, and start it again at the end; returns when it answers."""
        self._machines.pop("slurmctld").end()
        try:
            yield
        finally:
            self._start_controller()
            self._until(lambda: all(self.state(node) in {"idle", "mix", "alloc"} for node in self.nodes), "the nodes")

    def restart_controller(self) -> None:
        """Stop slurmctld and start it again."""
        with self.without_controller():
            pass

    def clear(self) -> None:
        """Cancel every job and switch every node on; returns when all are idle."""
        for node in self.nodes:
            if not self._machines[node].runs:
                self._start_node(node)
        self._until(self._empty, "an empty queue")
        self._until(lambda: all(self.state(node) == "idle" for node in self.nodes), "all nodes to be idle")

    def _empty(self) -> bool:
        self.run("scancel", "--user", getpass.getuser())
        return not self.run("squeue", "-h", check=False)

    def state(self, node: str) -> str:
        """The state of a node in sinfo's compact words, such as `idle`, `mix`, `down*`, `comp`."""
        # Ask for all nodes. For a single node, slurmctld answers with the allocation of the last query of all nodes: a
        # half full node that failed would be "mix*" and never "down*".
        listed = self.run("sinfo", "-h", "-N", "-p", "debug", "-o", "%N %t", check=False).splitlines()
        return dict(line.split() for line in listed).get(node, "")

    def _environ(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        return {**clean, **self.environment, "PATH": _path()}

    def _configure(self) -> None:
        shape, root, user = self.shape, self.root, getpass.getuser()
        controller_port, dbd_port, *node_ports = self._ports
        types = dict(zip(self.nodes, cycle(shape.gpu_types), strict=False))
        nodes = [
            f"NodeName={node} NodeHostname={node} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={shape.cpus} RealMemory=8000 State=UNKNOWN"
            + (f" Gres=gpu:{types[node]}:{shape.gpus}" if shape.gpus else "")
            for node, port in zip(self.nodes, node_ports, strict=True)
        ]
        filled = {"root": root, "user": user, "dbd_port": dbd_port}
        accounting = "AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none"
        if shape.accounting:
            accounting = template("accounting.conf.in", **filled)
            (root / "slurmdbd.conf").write_text(template("slurmdbd.conf.in", **filled), encoding="utf-8")
            (root / "slurmdbd.conf").chmod(0o600)
        filled |= {"accounting": accounting, "nodes": "\n".join(nodes)}
        text = template("slurm.conf.in", controller_port=controller_port, max_array=shape.max_array, **filled)
        (root / "slurm.conf").write_text(changed(text, shape.settings), encoding="utf-8")
        devices = [root / "dev" / f"gpu{number}" for number in range(shape.gpus)]
        for device in devices:
            device.unlink(missing_ok=True)
            device.symlink_to("/dev/null")  # must be a device, and only the administrator makes one
        lines = [f"NodeName={node} Name=gpu Type={types[node]} File={file}\n" for node in types for file in devices]
        (root / "gres.conf").write_text("".join(lines), encoding="utf-8")
        (root / "cgroup.conf").write_text("CgroupMountpoint=/sys/fs/cgroup\n", encoding="utf-8")

    def _machine(self, name: str, *command: str) -> None:
        environment = {**self._environ(), "MYSQL_UNIX_PORT": str(self.root / "run" / "mariadb")}
        self._machines[name] = Machine(name, self.root, list(command), environment)

    def _until(self, condition: Callable[[], object], what: str) -> None:
        """Wait, but not for a daemon that is gone."""

        def holds() -> object:
            for machine in self._machines.values():
                if not machine.runs and machine.name not in self.nodes:
                    raise ClusterBroken(f"{machine.name} ended: {machine.said()}")
            return condition()

        wait_for(holds, what)

    def _start_munge(self) -> None:
        run, key = self.root / "run", self.root / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        places = {"key-file": key, "socket": run / "munge", "pid-file": run / "munged.pid", "seed-file": run / "seed"}
        options = [f"--{name}={place}" for name, place in places.items()]
        self._machine("munged", "munged", "--foreground", "--force", f"--log-file={self.root}/log/munged", *options)
        self._until((run / "munge").is_socket, "munged")

    def _start_accounting(self) -> None:
        # no grant tables and no port: its socket lies in a directory of our own; durability is no concern here
        place, user = self.root / "run" / "mariadb", getpass.getuser()
        scratch = self.root / "mariadb-tmp"  # clusters that start together must not share temporary tables
        scratch.mkdir(exist_ok=True)
        where = ["--no-defaults", f"--datadir={self.root}/mariadb", f"--tmpdir={scratch}", f"--user={user}"]
        self.run("mariadb-install-db", *where, "--skip-test-db", "--auth-root-authentication-method=normal")
        access = ["--skip-grant-tables", "--skip-networking", f"--socket={place}", f"--pid-file={place}.pid"]
        speed = ["--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite", "--innodb-lock-wait-timeout=900"]
        self._machine("mariadbd", "mariadbd", *where, *access, *speed)
        create = ("mariadb", "-S", str(place), "-e", "create database if not exists slurm; select 'made'")
        self._until(lambda: "made" in self.run(*create, check=False), "the database")
        self._machine("slurmdbd", "slurmdbd", "-D")
        show = ("sacctmgr", "-nP", "show", "qos", "format=name")
        self._until(lambda: "normal" in self.run(*show, check=False), "slurmdbd")
        for change in ACCOUNTS:
            self.run("sacctmgr", "-i", *change.format(user=user).split())

    def _start_controller(self) -> None:
        self._machine("slurmctld", "slurmctld", "-D")
        self._until(lambda: "UP" in self.run("scontrol", "ping", check=False), "slurmctld")

    def _start_node(self, node: str) -> None:
        self._machine(node, "slurmd", "-D", "-N", node)


def template(name: str, **values: object) -> str:
    """A configuration file of this folder with its gaps filled."""
    return (HERE / name).read_text(encoding="utf-8").format(**values)


def changed(text: str, settings: Mapping[str, str]) -> str:
    """The text of a slurm.conf in which each key of `settings` is said once, with that value."""
    kept = [line for line in text.splitlines() if line.split("=")[0] not in settings]
    return "\n".join([*kept, *(f"{key}={value}" for key, value in settings.items())]) + "\n"


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on, outside of the range that clients draw from."""
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < count:
            candidate = socket.socket()
            try:
                candidate.bind(("127.0.0.1", random.SystemRandom().randrange(20000, 32000)))
            except OSError:
                candidate.close()
            else:
                sockets.append(candidate)
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
