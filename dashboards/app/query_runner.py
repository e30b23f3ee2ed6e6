"""A reader's own SQL: each query runs in a process of its own, whose time and memory the kernel limits."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, Self, final
from weakref import ReferenceType, ref

import polars as pl

from ablate.dashboards.app.campaigns import MEMORY_BYTES
from ablate.dashboards.data.user_errors import Unknown
from ablate.grid.errors import AblateError, EnvironmentProblem, SpecError, StoreError
from ablate.store import Layout, Store
from ablate.store.database.query_log import note
from ablate.store.database.readonly import locked_connection

LIMIT_S: Final = 10.0  # seconds after which a query is killed
PROCESS_BYTES: Final = 2 * MEMORY_BYTES
"""Memory of the process of a query; DuckDB itself stops at `MEMORY_BYTES`, where it can."""
AT_ONCE: Final = 2  # queries that run at one time; the server has more threads for other requests
LIVE_S: Final = 1.0  # a query that took longer is not asked again by new results
MOST_BYTES: Final = 64 * 2**20  # largest result
WAIT_S: Final = 3.0  # seconds that a query waits for its turn
LIMITS: Final = f"a query here has {LIMIT_S:g} s and {PROCESS_BYTES / 2**30:g} GiB of memory"
REST_S: Final = 0.3  # seconds after a query before the next process starts; the browser shows the answer meanwhile
_KEPT: Final = 16
_THREADS: Final = 4
_ERRORS: Final = {kind.__name__: kind for kind in (Unknown, SpecError, StoreError, EnvironmentProblem)}
_ADVICE: Final = (
    "ask for less (one grid, one name, buckets of steps instead of every step), or run it in a terminal with "
    "`ablate sql`, which has no such limit"
)
_TOO_BIG: Final = f"the query was stopped at its limit of memory: {LIMITS}; {_ADVICE}"


class QueryAnswer(NamedTuple):
    """The first rows of a result."""

    frame: pl.DataFrame
    took_s: float
    at: datetime  # when it was asked


def _start() -> "subprocess.Popen[bytes]":
    """Start a process that answers one query."""
    command, pipe = [sys.executable, "-m", "ablate.dashboards.app.query_runner"], subprocess.PIPE
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=Path(__file__).parents[3], env=environment
    )


@final
class SpareProcess(AbstractContextManager["SpareProcess"]):
    """Inside, one process waits for the next query, because Python and its imports take a second to start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = False
        self._spare: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._wanted = True
        self.refill()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._wanted, spare, self._spare = False, self._spare, None
        if spare is not None:
            _end(spare)

    def take(self) -> "subprocess.Popen[bytes]":
        """Return the process that waits, or a new one."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and spare.poll() is not None:  # the system ended it
            _end(spare)
            spare = None
        return spare or _start()

    def refill(self) -> None:
        """Start the process that waits next, if one is wanted; without memory for it, the next query starts its own."""
        with self._lock, suppress(OSError):
            if self._wanted and self._spare is None:
                self._spare = _start()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    with suppress(BrokenPipeError), process:  # closes its pipes and waits for it
        pass


SPARE: Final = SpareProcess()


def run_in_process(store: Store, query: str, most: int, limit_s: float = LIMIT_S) -> QueryAnswer:
    """Run one reading statement in a process of its own, and kill it at its limits.

    Raises Unknown at a limit of time, memory or size; else as `Store.sql`.
    """
    at = datetime.now()
    request = {"root": os.fsdecode(store.layout.root.resolve()), "query": query, "most": most}
    with TemporaryDirectory(prefix="ablate-query-") as spill:  # the engine cannot clean up when it is killed
        asked = json.dumps({**request, "spill": spill})
        with SPARE.take() as process:
            assert process.stdout is not None
            process.stdout.readline()  # the limit of time is the query's: a busy machine may start Python slowly
            try:
                out, errors = process.communicate(asked.encode(), timeout=limit_s)
            except subprocess.TimeoutExpired:
                raise Unknown(_too_long(limit_s)) from None
            finally:
                process.kill()
    if process.returncode == -signal.SIGXCPU:
        raise Unknown(_too_long(limit_s))
    if process.returncode < 0:  # the engine, or polars, aborts where it gets no memory
        raise Unknown(_TOO_BIG)
    if process.returncode:
        raise RuntimeError(f"the process of a query failed: {errors.decode('utf-8', 'replace')}")
    head, _, body = out.partition(b"\n")
    reply = json.loads(head)
    if "error" in reply:
        raise _ERRORS.get(reply["error"], StoreError)(reply["text"])
    return QueryAnswer(pl.read_ipc(io.BytesIO(body)), reply["took_s"], at)


def _too_long(limit_s: float) -> str:
    return f"the query was stopped after {limit_s:g} s, its limit of time; {_ADVICE}"


def _main() -> None:
    """Answer the query on stdin: on stdout `ready`, a line of JSON, and then the rows."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    cpu_s = int(LIMIT_S * _THREADS)  # also if the dashboard is gone and cannot kill
    for kind, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_DATA, PROCESS_BYTES)):
        resource.setrlimit(kind, (limit, limit if kind != resource.RLIMIT_CPU else limit + 1))
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.flush()
    text = sys.stdin.read()
    if not text:  # nobody asked before the dashboard ended
        return
    asked = json.loads(text)
    os.environ["TMPDIR"] = asked["spill"]
    body = io.BytesIO()
    try:
        frame, took_s = _ask(Layout(Path(asked["root"])), asked["query"], asked["most"])
        frame.write_ipc(body)
        head = json.dumps({"took_s": took_s})
    except MemoryError:
        head = json.dumps({"error": "Unknown", "text": _TOO_BIG})
    except AblateError as error:
        name = next((name for name, kind in _ERRORS.items() if isinstance(error, kind)), "StoreError")
        head = json.dumps({"error": name, "text": str(error)})
    sys.stdout.buffer.write(head.encode() + b"\n")
    sys.stdout.buffer.write(body.getbuffer())
    sys.stdout.flush()
    os._exit(0)  # Python takes a tenth of a second to end, for which the reader would wait


def _ask(layout: Layout, query: str, most: int) -> tuple[pl.DataFrame, float]:
    connection = locked_connection(layout.snapshot, memory_bytes=MEMORY_BYTES, threads=_THREADS)
    with Store(layout, connection, None) as store:
        started = time.monotonic()
        try:
            frame = store.sql(query, most=most)
        except EnvironmentProblem:
            raise Unknown(_TOO_BIG) from None
        except SpecError as error:
            if "bad_alloc" in str(error) or "allocate" in str(error):
                raise Unknown(_TOO_BIG) from None
            raise
        took_s = time.monotonic() - started
    size = frame.estimated_size()
    if size > MOST_BYTES:
        raise Unknown(
            f"the result has {size / 2**20:,.0f} MiB, and a page takes {MOST_BYTES // 2**20}; ask for fewer rows "
            "or columns, or write it to a file with `ablate sql --parquet FILE`"
        )
    return frame, took_s


@final
class QueryRunner:
    """Answers queries of readers, and keeps the last ones."""

    def __init__(self, run: Callable[[Store, str, int], QueryAnswer] = run_in_process) -> None:
        self._run = run
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._kept: OrderedDict[tuple[Path, str, int], tuple[ReferenceType[Store], QueryAnswer | AblateError]]
        self._kept = OrderedDict()

    def answer(self, store: Store, query: str, most: int, *, is_refresh: bool = False) -> QueryAnswer:
        """`most` rows of the result of one reading statement; asked once per store.

        `is_refresh` is True if the page asks by itself: a slow query then keeps its last answer.
        Raises Unknown if too many run already; else as `run_in_process`.
        """
        note(query, None)
        key = (store.layout.root, query, most)
        asked_by, outcome = self._kept.get(key, (None, None))
        is_slow = isinstance(outcome, AblateError) or (outcome is not None and outcome.took_s > LIVE_S)
        if asked_by is None or outcome is None or not (asked_by() is store or (is_refresh and is_slow)):
            outcome = self._answer(store, query, most)
            self._kept.pop(key, None)  # the newest stands last; other threads may have taken it out
            self._kept[key] = ref(store), outcome
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        if isinstance(outcome, AblateError):
            raise outcome
        return outcome

    def _answer(self, store: Store, query: str, most: int) -> QueryAnswer | AblateError:
        if not self._places.acquire(timeout=WAIT_S):
            raise Unknown(f"{AT_ONCE} queries of readers are running already; run yours again in a moment")
        try:
            return self._run(store, query, most)
        except AblateError as error:
            return error.with_traceback(None)  # frames of the stack hold the store
        finally:
            self._places.release()
            later = threading.Timer(REST_S, SPARE.refill)
            later.daemon = True
            later.start()


if __name__ == "__main__":
    _main()
