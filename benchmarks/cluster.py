"""Cost of submitting to a cluster and of training on warm workers, as JSON lines. Without a cluster, one is started.

python benchmarks/cluster.py [--part submission overhead packing load] [--repeat 3] [--place DIR] [--slurm JSON]
python benchmarks/cluster.py --part packing --device cuda

On a cluster of your own, `--slurm` are fields of `Slurm`, such as '{"partition": "gpu", "account": "me"}', and
`--place` is a directory that login node and nodes share. A line has the median, the lowest and the highest value of n
runs (parts as [median, lowest, highest]) and the unit. It also has the command and the load average when it began.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from calls import called, counting, counts, per_minute
from warm_worker import NOTHING, TINY

from runners.attempts.worker import WorkerEntry
from runners.provenance.specfile import load_spec_file
from runners.slurm.scheduler import SlurmScheduler as Scheduler, TaskId, cancel
from runners.slurm.spec import Slurm
from runners.slurm.submit.submit import Drafter, SubmitOptions, submit
from runners.slurm.worker_records import WorkerRecord, read_workers
from store.files.atomic import read_json
from store.files.layout import Layout
from store.files.trial_status import trial_state

HERE = Path(__file__).resolve().parent
PATIENCE_S = 600.0
LOOK_S = 0.5
WATCHED_S = 70.0
"""The queue is asked when a view begins and then once a minute, so this sees two questions."""
OVERHEAD = (
    ("nothing", NOTHING, "nothing({trials})", 100),
    ("tiny", TINY, "tiny({trials}, steps=30)", 40),
)
MODELS = {
    "cpu": "tiny({trials}, steps=120)",
    "cuda": "tiny({trials}, steps=2000, execution=Execution(device='cuda', log_every=10), heads=4, width=256)",
}


@dataclass
class Bench:
    """The setup that all parts share."""

    place: Path
    slurm: dict[str, Any]
    repeat: int
    device: str
    load: float = 0.0

    def begin(self) -> None:
        """A measurement begins."""
        self.load = round(os.getloadavg()[0], 2)

    def report(self, name: str, what: str, values: Sequence[float], unit: str, **more: Any) -> None:
        """One line."""
        median, low, high = spread(values)
        found = {"name": name, "value": median, "low": low, "high": high, "n": len(values), "unit": unit}
        print(json.dumps({**found, **more, "what": what, "load": self.load}), flush=True)

    def fresh(self, name: str) -> Path:
        """A directory of its own."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.place))


def spread(values: Sequence[float]) -> list[float]:
    """Median, lowest and highest, to four digits."""
    return [float(f"{each:.4g}") for each in (statistics.median(values), min(values), max(values))]


@dataclass
class Done:
    """A submission that was trained to its end by one worker."""

    layout: Layout
    worker: WorkerRecord
    rows: list[dict[str, Any]]
    """Lines that `warm_worker` wrote, in order of time."""

    def ends(self) -> list[float]:
        """When trials ended, in order; SystemExit if one is not ok."""
        states = [trial_state(self.layout, key) for key in self.layout.trial_keys()]
        for state in states:
            if state.status != "ok":
                why = (state.attempts[-1].end or {}).get("message")
                raise SystemExit(f"a trial is {state.status} that was to be ok: {why}")
        return sorted(float((state.attempts[-1].end or {})["ended"]) for state in states)


def trained(bench: Bench, name: str, grid: str, entry: WorkerEntry, request: dict[str, Any]) -> Done:
    """Train a grid of `warm_worker` with one worker of the cluster; returns when it has left."""
    place = bench.fresh(name)
    spec = place / "trials.py"
    spec.write_text(f"from runners.trial import Execution\nfrom warm_worker import *\ngrid = {grid}\n")
    (place / "spans").mkdir()
    os.environ |= {"ABLATE_SPANS": str(place / "spans"), "ABLATE_TREES": str(bench.place / "trees")}
    asked = Slurm(**{"gpus": 0, "time": "30m", "workers": 1, **bench.slurm, **request})
    options = SubmitOptions(files=(spec,), entry=entry)
    grids = [next(iter(load_spec_file(spec).values()))]
    found = submit(Drafter(place / "campaign", grids, asked, Scheduler(), options), lambda _: None)
    assert found.record is not None
    jobs = found.record.jobs
    began = time.monotonic()
    while Scheduler().queued(jobs, ()).tasks:
        if time.monotonic() - began > PATIENCE_S:
            cancel(TaskId(job) for job in jobs)
            raise SystemExit(f"the worker did not end in {PATIENCE_S:.0f} s; it was cancelled")
        time.sleep(LOOK_S)
    layout = Layout(place / "campaign")
    rows = [json.loads(line) for file in (place / "spans").iterdir() for line in file.read_text().splitlines()]
    records = read_workers(layout, found.record.submission)
    if [each.left for each in records] != ["done"]:
        raise SystemExit(f"the worker was to leave done, and left: {[(each.left, each.says) for each in records]}")
    return Done(layout, records[0], sorted(rows, key=lambda row: float(row["began"])))


def submission(bench: Bench) -> None:
    """10,000 trials queued, in fresh processes."""
    runs = []
    bench.begin()
    for _ in range(bench.repeat):
        place = bench.fresh("submission")
        environ = counting(place / "bin", place / "calls")
        command = [sys.executable, str(HERE / "submitting.py"), str(place), json.dumps(bench.slurm)]
        answer = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
        runs.append({**json.loads(answer.stdout), "calls": counts(called(place / "calls"))})
    what = f"10,000 trials of benchmarks/ten_thousand.py (200 cells), {runs[0]['arrays']} array of 64 workers"
    for stage in ("planning", "submission"):
        found = [_stage(run, stage) for run in runs]
        parts = {label: spread([each[label] for each in found]) for label in found[0]}
        target = {"target": 2.0} if stage == "submission" else {}
        bench.report(f"submission.{stage}", what, [sum(each.values()) for each in found], "s", **target, parts=parts)
    rates = [run["trials"] / sum(_stage(run, "submission").values()) for run in runs]
    bench.report("submission.trials_per_s", what, rates, "trials/s")
    bench.report("submission.import", "modules that it needs", [run["parts"]["import"] for run in runs], "s")
    bench.report("submission.files", what, [run["files"] for run in runs], "files before the first worker", target=6)
    bench.report("submission.bytes", what, [run["bytes"] for run in runs], "bytes before the first worker")
    calls = [sum(run["calls"].values()) for run in runs]
    bench.report("submission.calls", what, calls, "calls of SLURM's commands", calls=runs[0]["calls"])


def _stage(run: dict[str, Any], stage: str) -> dict[str, float]:
    found = ((label.partition(": "), seconds) for label, seconds in run["parts"].items())
    return {label: seconds for (first, _, label), seconds in found if first == stage}


def overhead(bench: Bench) -> None:
    """Measure the overhead of a trial on a warm worker, without steps, evaluations and the first trial."""
    bench.begin()
    runs: dict[str, list[Done]] = {name: [] for name, *_ in OVERHEAD}
    for _ in range(bench.repeat):
        for name, entry, grid, trials in OVERHEAD:
            runs[name].append(trained(bench, name, grid.format(trials=trials), entry, {"cpus": 1}))
    for name, _, grid, trials in OVERHEAD:
        what = f"{grid.format(trials=trials)} on one warm worker, per trial: time that is no step and no evaluation"
        times = [_overheads(run) for run in runs[name]]
        middle = [1e3 * statistics.median(each["all"]) for each in times]
        bench.report(f"overhead.{name}", what, middle, "ms", target=50)
        means = [{label: 1e3 * statistics.mean(each[label]) for label in each} for each in times]
        parts = {
            label: spread([each.get(label, 0.0) for each in means]) for label in sorted(means[0]) if label != "all"
        }
        bench.report(f"overhead.{name}.mean", what, [each["all"] for each in means], "ms", parts=parts)
        fsyncs = [statistics.mean(row["calls"].get("fsync", 0) for row in run.rows[1:]) for run in runs[name]]
        bench.report(f"overhead.{name}.fsyncs", what, fsyncs, "calls")
        files = [10_000 / trials * _files(run.layout) for run in runs[name]]
        bench.report(f"overhead.{name}.files", what, files, "files per 10,000 finished trials, shards included")
        warm = [run.rows[0]["began"] - run.worker.started for run in runs[name]]
        bench.report(f"overhead.{name}.start", what, warm, "s from the start of the worker to its first trial")


def _overheads(run: Done) -> dict[str, list[float]]:
    """Seconds of each trial but the first: all that is overhead, and its parts."""
    found: dict[str, list[float]] = {"all": []}
    for before, row in zip(run.rows, run.rows[1:], strict=False):
        parts = {**row["s"], "handed over by the supervisor": row["began"] - before["ended"]}
        found["all"].append(row["ended"] - before["ended"] - parts.pop("steps and evaluations", 0.0))
        for label, seconds in parts.items():
            found.setdefault(label, []).append(seconds)
    return found


def _files(layout: Layout) -> int:
    return sum(path.is_file() for place in (layout.trials, layout.spool) for path in place.rglob("*"))


def packing(bench: Bench) -> None:
    """Trials per hour of one worker by how many it trains side by side; sizes take turns, so that load hits all."""
    bench.begin()
    on_gpu = bench.device == "cuda"
    sizes: tuple[int | str, ...] = (1, 2, 4, 8, "auto") if on_gpu else (1, 2)
    cpus = min(16, os.cpu_count() or 1) if on_gpu else 2
    rates: dict[int | str, list[float]] = {size: [] for size in sizes}
    for _ in range(bench.repeat):
        for size in sizes:
            grid = MODELS[bench.device].format(trials=64 if size == "auto" else max(8, 4 * int(size)))
            request = {"per_gpu": size, "gpus": int(on_gpu), "cpus": cpus}
            rates[size].append(_trials_per_hour(trained(bench, f"packed-{size}", grid, TINY, request)))
    what = f"{MODELS[bench.device].format(trials='n')}, one worker with {cpus} processors, of {os.cpu_count()} here"
    for size in sizes:
        bench.report(f"packing.per_gpu={size}", what, rates[size], "trials/hour", device=bench.device)
        if size != 1:
            ratios = [packed / alone for packed, alone in zip(rates[size], rates[1], strict=True)]
            bench.report(f"packing.per_gpu={size} / 1", what, ratios, "ratio", device=bench.device)


def _trials_per_hour(run: Done) -> float:
    """From the end of the first trials, one in each slot, to that of the last."""
    ends, slots = run.ends(), run.worker.slots
    return 3600 * (len(ends) - slots) / (ends[-1] - ends[slots - 1])


def load(bench: Bench) -> None:
    """Calls of SLURM's commands by `ablate watch`, by `ablate run --wait`, and by workers, one of them queued again."""
    bench.begin()
    place = bench.fresh("load")
    spec = place / "trials.py"
    asked = {"gpus": 0, "time": "30m", "workers": 2, "cpus": 1, **bench.slurm}
    slurm = f"from runners.slurm.spec import Slurm\nslurm = Slurm(**{asked!r})\n"
    spec.write_text(f"{slurm}from warm_worker import tiny\ngrid = tiny(2000, steps=300)\n")
    layout = Layout(place / "campaign")
    with contextlib.ExitStack() as stack:
        waiting = stack.enter_context(_command(place, "run", str(spec), "--on", "slurm", "--wait"))
        (job,) = _once(lambda: _jobs(layout), waiting)
        stack.callback(cancel, [TaskId(job)])
        began = time.monotonic()
        watching = stack.enter_context(_command(place, "watch"))
        _once(lambda: list(layout.trials.glob("*/*/*/end.json")), waiting)
        subprocess.run(["scancel", "--signal=USR2", f"{job}_0"], check=True)
        time.sleep(max(0.0, began + WATCHED_S - time.monotonic()))
        if waiting.poll() is not None or watching.poll() is not None:
            raise SystemExit(
                f"a command ended before it was watched for {WATCHED_S:.0f} s; run it by itself to see why"
            )
        _report_load(bench, place)


def _report_load(bench: Bench, place: Path) -> None:
    ours, watch = called(place / "run.calls"), called(place / "watch.calls")
    workers = [call for call in ours if call.job]
    commands = [call for call in ours if not call.job]
    released = max(at for at, call in enumerate(commands) if call.command.startswith("scontrol release"))
    wait = commands[released + 1 :]
    for name, calls in (("watch", watch), ("run --wait", wait)):
        what = f"`ablate {name}` for {WATCHED_S:.0f} s, 2 workers; from its first question to its last"
        bench.report(f"load.{name}", what, [per_minute(calls, "squeue")], "squeue/min", calls=counts(calls))
    what = f"2 workers for {WATCHED_S:.0f} s, one of which saves, leaves and is queued again"
    bench.report("load.workers", what, [len(workers)], "calls", calls=counts(workers))


@contextlib.contextmanager
def _command(place: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`ablate` with these words on the campaign in `place`; interrupted in the end."""
    environ = counting(place / "bin", place / f"{words[0]}.calls") | {"PYTHONPATH": f"{HERE.parent}:{HERE}"}
    environ.pop("ABLATE_SPANS", None)
    command = [sys.executable, "-P", "-m", "runners", *words, "--campaign", str(place / "campaign")]
    with (place / f"{words[0]}.out").open("wb") as out:
        process = subprocess.Popen(command, env=environ, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.send_signal(2)
            process.wait()


def _jobs(layout: Layout) -> list[int]:
    found = [read_json(path) for path in layout.submissions.glob("*/submission.json")]
    return [array["job"] for each in found for kind in each["classes"] for array in kind["arrays"] if array.get("job")]


def _once(look: Any, process: subprocess.Popen[bytes]) -> Any:
    """Wait until `look` returns something, and return it. Raise SystemExit if the process ends before."""
    while not (found := look()):
        if process.poll() is not None:
            raise SystemExit(f"{process.args} ended with {process.returncode}")
        time.sleep(LOOK_S)
    return found


@contextlib.contextmanager
def _cluster(place: Path) -> Iterator[str]:
    """The cluster at hand, or one of tests/cluster for as long as it is needed; says which."""
    with contextlib.suppress(FileNotFoundError):
        if subprocess.run(["scontrol", "ping"], capture_output=True, check=False).returncode == 0:
            yield "the cluster at hand"
            return
    sys.path.insert(0, str(HERE.parent / "tests"))
    from cluster.cluster import Cluster, Shape

    with Cluster(Shape(nodes=2, cpus=max(2, os.cpu_count() or 2), gpus=1), place / "slurm") as made:
        os.environ.update(made.environment)
        yield "the test cluster: 2 nodes that are processes of this machine"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {each.__name__: each for each in (submission, overhead, packing, load)}
    parser.add_argument("--part", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--place", type=Path, default=None)
    parser.add_argument("--slurm", type=json.loads, default={})
    parser.add_argument("--device", choices=MODELS, default="cpu")
    asked = parser.parse_args()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=asked.place, ignore_cleanup_errors=True) as place,
        _cluster(Path(place)) as cluster,
    ):
        bench = Bench(Path(place).resolve(), asked.slurm, asked.repeat, asked.device)
        about = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        print(json.dumps({**about, "python": platform.python_version(), "cluster": cluster, "device": bench.device}))
        for part in asked.part:
            parts[part](bench)
    print(json.dumps({"name": "all", "value": round(time.monotonic() - began), "unit": "s"}))


if __name__ == "__main__":
    main()
