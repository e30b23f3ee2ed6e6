"""Process group of one trial: ranks share every batch, sum their gradients and make the same steps.

Every rank holds the whole model, draws the whole batch and computes its parts of it. One all-reduce per step sums the
flat gradient and the loss. DistributedDataParallel would average, but parts weighted by their terms need a sum.
Rank 0 alone reads and writes checkpoints, evaluates and records.
"""

import contextlib
import io
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from ablate.grid.errors import EnvironmentProblem

PATIENCE_S = 1800.0
"""Longest wait for other ranks; rank 0 may evaluate or save meanwhile. Rank 0 detects a dead rank at once."""

BLAME_S = 2.0
"""Longest time between an error that a lost connection causes and the death of the process at its other end."""

_LOOK_EVERY_S = 5e-5


def node_count() -> int:
    """Return the nodes that share a trial; the script of a SLURM worker sets the variable."""
    return int(os.environ.get("ABLATE_NODES", "1"))


class PeerLost(RuntimeError):
    """Another rank did not take part in an operation: it died or timed out."""


class RankPlace(NamedTuple):
    """Rank of this process."""

    rank: int = 0
    size: int = 1
    local: int = 0
    """Index of the device on the node."""


@final
class World:
    """Collective operations on the ranks of a trial, with `check` while waiting; PeerLost if a rank is gone."""

    def __init__(self, place: RankPlace, device: torch.device, check: Callable[[], None] = lambda: None) -> None:
        self.place, self.device, self._check = place, device, check

    def add(self, values: Tensor) -> Tensor:
        """Sum `values` over the ranks, in place; all ranks get the same bits."""
        if self.place.size > 1:
            self._wait(lambda: dist.all_reduce(values, async_op=True))
        return values

    def any(self, flag: bool) -> bool:  # noqa: FBT001
        if self.place.size == 1:
            return flag
        return bool(self.add(torch.tensor([float(flag)], device=self.device)).item())

    def share_restored(self, restored: tuple[int, Mapping[str, Any]] | None) -> tuple[int, Mapping[str, Any]] | None:
        """Broadcast the checkpoint (step, state) that rank 0 loaded."""
        if self.place.size == 1:
            return restored
        sink = io.BytesIO()
        if self.place.rank == 0 and restored is not None:
            torch.save({"step": restored[0], "state": dict(restored[1])}, sink)
        size = torch.tensor([sink.tell()], device=self.device)
        self._wait(lambda: dist.broadcast(size, 0, async_op=True))
        if not int(size):
            return None
        data = torch.empty(int(size), dtype=torch.uint8, device=self.device)
        if self.place.rank == 0:
            data.copy_(torch.frombuffer(sink.getbuffer(), dtype=torch.uint8))
        self._wait(lambda: dist.broadcast(data, 0, async_op=True))
        if self.place.rank == 0:
            return restored
        read = torch.load(io.BytesIO(data.cpu().numpy().tobytes()), map_location="cpu", weights_only=True)
        return read["step"], read["state"]

    def gather(self, data: Any) -> list[Any]:
        """Return the plain data and tensors of every rank, in their order."""
        if self.place.size == 1:
            return [data]
        sink, every = io.BytesIO(), [b""] * self.place.size
        torch.save(data, sink)
        with _raise_peer_lost(self.place.rank):
            dist.all_gather_object(every, sink.getvalue())
        return [torch.load(io.BytesIO(each), weights_only=True) for each in every]

    def blame(self, error: Exception) -> None:
        """Raise PeerLost if another rank has failed or ended soon after `error`, which then followed from that."""
        until = time.monotonic() + BLAME_S
        while self.place.rank == 0 and time.monotonic() < until:
            try:
                self._check()
            except PeerLost as lost:
                raise lost from error
            time.sleep(_LOOK_EVERY_S)

    def _wait(self, begin: Callable[[], "dist.Work | None"]) -> None:
        rank = self.place.rank
        with _raise_peer_lost(rank):
            work = begin()
        assert work is not None
        until = time.monotonic() + PATIENCE_S
        while not work.is_completed():
            self._check()
            if time.monotonic() > until:
                raise PeerLost(f"rank {rank} waited for the others for {PATIENCE_S:.0f} s")
            time.sleep(_LOOK_EVERY_S)
        with _raise_peer_lost(rank):
            work.wait()


@final
class RankAgreement:
    """Decisions of rank 0 that all ranks carry out at the same step, announced two steps ahead.

    Ranks that share a sum of gradients in every step are at most one step apart, so that none passes the step unaware.
    """

    def __init__(self, rank: int) -> None:
        self._rank, self._number = rank, 0
        self._store = dist.distributed_c10d._get_default_store()
        self._next: tuple[int, str] | None = None

    def propose(self, step: int, what: str) -> None:
        """Announce as rank 0, at the end of `step`; another announcement that waits comes first."""
        if self._rank == 0 and self._next is None:
            self._next = step + 2, what
            self._store.set(self._key, f"{step + 2} {what}")

    def due(self, step: int) -> str | None:
        """Return what is due at the end of `step`."""
        self._listen()
        if self._next is None or self._next[0] > step:
            return None
        return self.discard()

    def discard(self) -> str | None:
        """Return what was announced and is not done yet; all ranks have made the same steps."""
        self._listen()
        what = None
        if self._next is not None:
            what, self._next, self._number = self._next[1], None, self._number + 1
        return what

    def _listen(self) -> None:
        if self._next is None and self._rank and self._store.check([self._key]):
            step, what = self._store.get(self._key).decode().split()
            self._next = int(step), what

    @property
    def _key(self) -> str:
        return f"ablate/{self._number}"


@contextlib.contextmanager
def _raise_peer_lost(rank: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo and NCCL raise this if a connection closes
        raise PeerLost(f"rank {rank} lost another rank: {error}") from error


def place_given() -> RankPlace | None:
    """Read the rank from torchrun's environment variables; None if they are not set."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if any(name not in os.environ for name in names):
        return None
    return RankPlace(*(int(os.environ[name]) for name in names[:3]))


@contextlib.contextmanager
def join_group(place: RankPlace, device: torch.device, store: Store | None = None) -> Iterator[None]:
    """Join the process group at `store`, or at MASTER_ADDR and MASTER_PORT; PeerLost if another rank did not."""
    if dist.is_initialized():
        raise EnvironmentProblem(
            "this process already has a process group; call torch.distributed.destroy_process_group()"
        )
    backend = "nccl" if device.type == "cuda" else "gloo"
    with (
        _on_loopback() if store is not None and node_count() == 1 else contextlib.nullcontext(),
        _raise_peer_lost(place.rank),
    ):
        dist.init_process_group(
            backend, store=store, rank=place.rank, world_size=place.size, timeout=timedelta(seconds=PATIENCE_S)
        )
    try:
        yield
    except BaseException:
        if backend == "nccl":
            dist.distributed_c10d._abort_process_group()  # else an operation that waits for a dead rank never ends
        else:
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Bind gloo to the loopback interface; ranks of one node need no other."""
    before = os.environ.get("GLOO_SOCKET_IFNAME")
    os.environ["GLOO_SOCKET_IFNAME"] = before or "lo"
    try:
        yield
    finally:
        if before is None:
            del os.environ["GLOO_SOCKET_IFNAME"]
