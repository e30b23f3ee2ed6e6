"""Starts the ranks of a trial on several GPUs; this process is rank 0.

Every other rank is a fresh interpreter, since neither CUDA nor autograd threads survive a fork. It reads the trial from
standard input, reports over a pipe, ignores signals and dies with this process. srun starts the ranks of other nodes.
`torch.distributed.run` would start rank 0 anew, too, but claims, checkpoints and stops belong to this process.
"""

import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import torch
from torch.distributed import FileStore, Store, TCPStore  # type: ignore[attr-defined]

from ablate.grid import Experiment, Spec
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.processes.failure import failure_of
from ablate.runners.processes.memory import oom_kills
from ablate.runners.processes.process_group import PeerLost, RankPlace, World, join_group, node_count, place_given
from ablate.runners.processes.training_context import Killed, NodeLost
from ablate.runners.provenance.code import SOURCE, spec_module_name, specs

_SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2")
_START = (
    f"import signal; [signal.signal(getattr(signal, name), signal.SIG_IGN) for name in {_SIGNALS}]; "  # before imports
    "import json, sys; job = json.load(sys.stdin); sys.path[:] = job['path']; "
    "from ablate.runners.processes.rank_worker import main; main(job)"
)
_SRUN = (
    "import json, os, signal, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ablate.runners.child_lifetime import die_with; die_with(int(sys.argv[2]), signal.SIGTERM); "
    "os.execvp('srun', ['srun', *sys.argv[3:]])"
)
"""srun ends with this process, and srun ends its ranks at SIGTERM only."""
_SETTLE_S = 5.0
"""Longest time between a lost connection and the death of its process."""
_LEAVE_S = 60.0
"""Longest time for a rank to end after the last step."""


class RankFailed(RuntimeError):
    """A rank other than 0 failed or died; the message holds its error."""


class RankKilled(RankFailed, Killed):
    """A signal ended the process of a rank other than 0."""


class RankOutOfMemory(RankFailed, MemoryError):
    """A rank ran out of memory, or the system killed it for lack of memory."""


@contextlib.contextmanager
def ranks(trial: Experiment, train: str, more: Mapping[str, str] | None = None) -> Iterator[World]:
    """Start the ranks that `trial` asks for and end them on exit; no process is started for one rank.

    `train` is the function that the others call, as "module:name", with the trial, their `World` and `more`.

    EnvironmentProblem if there are fewer devices than ranks, or WORLD_SIZE differs. SpecError if another process cannot
    load a class of the trial. RankFailed if a rank that was started here failed.
    """
    execution = trial.execution
    launched = place_given() if execution.gpus > 1 else None
    place = launched or RankPlace(0, execution.gpus)
    if place.size != execution.gpus:
        raise EnvironmentProblem(
            f"execution.gpus is {execution.gpus} and WORLD_SIZE is {place.size}; start as many ranks as GPUs, or unset "
            "WORLD_SIZE"
        )
    device = device_of(execution.device, place, joined=launched is not None)
    if execution.gpus == 1:
        yield World(place, device)
    elif launched is not None:
        with join_group(place, device):
            yield World(place, device)
    else:
        with _start_ranks(trial, device, {"train": train, "more": dict(more or {})}) as world:
            yield world


def device_of(name: str, place: RankPlace = RankPlace(), *, joined: bool = False) -> torch.device:  # noqa: B008
    """Choose the device of a rank for `execution.device`; EnvironmentProblem if there are too few."""
    count = torch.cuda.device_count() if torch.cuda.is_available() and name != "cpu" else 0
    if name == "cuda" and not count:
        raise EnvironmentProblem("execution.device is 'cuda' and this machine has no CUDA device; use 'auto' or 'cpu'")
    if not count:
        return torch.device("cpu")
    if place.size == 1:
        return torch.device("cuda")
    local = 0 if joined and count == 1 else place.local  # a launcher may show each rank its own device alone
    needed = -(-place.size // node_count())
    if local >= count or (not joined and needed > count):
        where = "one node" if needed == place.size else f"{node_count()} nodes"
        raise EnvironmentProblem(
            f"this machine shows {count} CUDA devices, and execution.gpus={place.size} needs that many on {where}; ask "
            "for more, lower execution.gpus, or use execution.device='cpu'"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def require_precision(device: torch.device, precision: str) -> None:
    """Raise EnvironmentProblem if `device` cannot compute in `precision`."""
    needed = precision == "bfloat16" and device.type == "cuda"
    if needed and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise EnvironmentProblem(
            f"{torch.cuda.get_device_name()} does not compute precision='bfloat16'; use precision='float32'"
        )


@contextlib.contextmanager
def _start_ranks(trial: Experiment, device: torch.device, job: Mapping[str, Any]) -> Iterator[World]:
    place = RankPlace(0, trial.execution.gpus)
    with tempfile.TemporaryDirectory(prefix="ablate-ranks-") as folder:
        meeting = {"file": str(Path(folder, "store"))}
        if node_count() > 1:
            meeting = {"host": os.environ.get("MASTER_ADDR") or socket.gethostname()}
        store = meeting_store(meeting, place)
        if isinstance(store, TCPStore):
            meeting["port"] = str(store.port)
        others = _Others({**_job(trial, meeting), **job}, place.size)
        try:
            others.await_ready()
            with join_group(place, device, store), _left_alone(others):
                yield World(place, device, others.check)
            others.leave()
        except PeerLost as error:
            raise others.explain_loss(error) from error
        finally:
            others.kill()


@contextlib.contextmanager
def _left_alone(others: "_Others") -> Iterator[None]:
    """Kill the other ranks after a failure; leaving the group would wait for their pending sums."""
    try:
        yield
    except PeerLost as error:
        failure = others.explain_loss(error)
        others.kill()
        raise failure from error
    except BaseException:
        others.kill()
        raise


def meeting_store(meeting: Mapping[str, str], place: RankPlace) -> Store:
    """Create or join the rendezvous: a local file, or for several nodes a free port of the first one."""
    if "file" in meeting:
        return FileStore(meeting["file"], place.size)
    port = int(meeting.get("port", 0))
    return TCPStore(meeting["host"], port, is_master=place.rank == 0, wait_for_workers=False)


@final
class _Others:
    """Ranks 1 and up, as processes of their own."""

    def __init__(self, job: dict[str, Any], size: int) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._said: list[int] = []
        self._heard: dict[int, dict[str, str]] = {}
        self._oom_kills = oom_kills()
        self._per_node = size // node_count()
        try:
            for rank in range(1, size):
                self._start({**job, "rank": rank, "local": rank % self._per_node})
        except BaseException:
            self.kill()
            raise

    def _start(self, job: dict[str, Any]) -> None:
        said, says = os.pipe()
        self._said.append(said)
        variables = {"RANK": job["rank"], "LOCAL_RANK": job["local"], "WORLD_SIZE": job["size"]}
        variables["LOCAL_WORLD_SIZE"] = self._per_node
        try:
            node = job["rank"] // self._per_node
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", *([_SRUN, *_srun_arguments(node)] if node else [_START])],
                stdin=subprocess.PIPE,
                stdout=says if node else None,
                pass_fds=[] if node else [says],
                env={**os.environ, **{name: str(value) for name, value in variables.items()}},
            )
        finally:
            os.close(says)
        self._processes.append(process)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as told:  # it died: waiting for it will say so
            told.write(json.dumps({**job, "says": says}).encode())

    def await_ready(self) -> None:
        for rank in range(1, len(self._processes) + 1):
            if "ready" not in self._hear(rank):
                raise self._failure(rank)

    def check(self) -> None:
        """Raise `PeerLost` if a rank has failed or ended."""
        gone = self._to_blame() or self._find_ended()
        if gone:
            raise PeerLost(f"rank {gone[0]} ended")

    def explain_loss(self, error: PeerLost) -> Exception:
        """Find the failure that caused the loss, not one that followed from it."""
        if out_of_memory(error):
            return RankOutOfMemory(str(error))
        until = time.monotonic() + _SETTLE_S
        while not (to_blame := self._to_blame()) and time.monotonic() < until:
            time.sleep(0.01)
        ended = to_blame or self._find_ended()
        if ended:
            return self._failure(ended[0])
        return NodeLost(str(error)) if node_count() > 1 else RankFailed(str(error))

    def _to_blame(self) -> list[int]:
        ended = self._find_ended()  # first: a rank reports before it ends
        for rank, said in enumerate(self._said, start=1):
            while select.select([said], [], [], 0)[0] and self._hear(rank):
                pass
        words = {rank: self._heard.get(rank, {}).keys() for rank in range(1, len(self._processes) + 1)}
        return [
            rank
            for rank, said in words.items()
            if said & {"memory", "failed"} or (rank in ended and "lost" not in said)
        ]

    def _find_ended(self) -> list[int]:
        return [rank for rank, process in enumerate(self._processes, start=1) if process.poll() is not None]

    def leave(self) -> None:
        until = time.monotonic() + _LEAVE_S
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):  # the trial is whole; `kill` ends it
                process.wait(max(0.0, until - time.monotonic()))

    def kill(self) -> None:
        for rank, process in enumerate(self._processes, start=1):
            if rank < self._per_node:
                process.kill()
            else:
                process.terminate()
        for process in self._processes:
            try:
                process.wait(_LEAVE_S)
            except subprocess.TimeoutExpired:  # srun waits for a node that is gone
                process.kill()
                process.wait()
        for said in self._said:
            os.close(said)
        self._said.clear()

    def _hear(self, rank: int) -> dict[str, str]:
        """Wait for the next message of the rank; `{}` if it ended."""
        data = b""
        while not data.endswith(b"\n"):
            more = os.read(self._said[rank - 1], 65536)
            if not more:
                return {}
            data += more
        message: dict[str, str] = json.loads(data.splitlines()[-1])
        self._heard[rank] = message
        return message

    def _failure(self, rank: int) -> RankFailed | NodeLost:
        said = self._heard.get(rank, {})
        who = f"rank {rank} of {len(self._processes) + 1} failed"
        if "memory" in said:
            return RankOutOfMemory(f"{who}: out of memory ({said['memory']})")
        if own := said.get("failed") or said.get("lost"):
            return RankFailed(f"{who}: {own}")
        status = self._processes[rank - 1].wait()
        if rank >= self._per_node:
            return NodeLost(f"{who} on another node: its process ended (exit status {status})")
        now = oom_kills()
        if status == -signal.SIGKILL and now is not None and self._oom_kills is not None and now > self._oom_kills:
            return RankOutOfMemory(f"{who}: the system killed its process, because the memory of the job was used up")
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return (RankKilled if status < 0 else RankFailed)(f"{who}: its process ended ({how})")


def out_of_memory(error: PeerLost) -> bool:
    """Return True if an operation failed because this rank ran out of memory."""
    return isinstance(error.__cause__, Exception) and failure_of(error.__cause__).reason == "out_of_memory"


def _srun_arguments(node: int) -> list[str]:
    """Return the arguments of `_SRUN` for a rank on another node of this job."""
    if shutil.which("srun") is None:
        raise EnvironmentProblem(
            "srun is not on PATH here, and starts the ranks on other nodes; let the container see SLURM's commands, or "
            "use nodes=1"
        )
    step = ["--overlap", "--nodes=1", "--ntasks=1", f"--relative={node}", "--export=ALL", "--cpu-bind=none"]
    python = shlex.split(os.environ["ABLATE_PYTHON"])
    return [json.dumps(sys.path), str(os.getpid()), *step, *python, "-P", "-c", _START]


def _job(trial: Experiment, meeting: Mapping[str, str]) -> dict[str, Any]:
    modules = {cls.__module__ for spec in specs(trial) for cls in type(spec).__mro__ if issubclass(cls, Spec)}
    files, names = {}, []
    for name in sorted(modules):
        module = sys.modules[name]
        file, source = getattr(module, "__file__", None), vars(module).get(SOURCE)
        if source is not None and file is not None and spec_module_name(file) == name:
            files[file] = source
        elif name == "__main__":
            raise SpecError(
                f"the class {name!r} of a trial on several GPUs is defined in the program; define it in a spec file"
            )
        else:
            names.append(name)
    return {
        "path": sys.path,
        "class": [type(trial).__module__, type(trial).__qualname__],
        "spec": trial.data(),
        "key": trial.key,
        "files": files,
        "modules": names,
        "meeting": dict(meeting),
        "size": trial.execution.gpus,
        "parent": os.getpid(),
    }
