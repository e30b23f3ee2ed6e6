"""Cost of submitting to a cluster and trials per hour of its workers, as JSON lines. Without a cluster, one is started.

python benchmarks/cluster.py [--part submission packing load] [--repeat 3] [--place DIR] [--slurm JSON] [--device cuda]

On a cluster of your own, `--slurm` are fields of `Slurm`, such as '{"partition": "gpu", "account": "me"}', and
`--place` is a directory that login node and nodes share. A line has the median, the lowest and the highest value of n
runs, the unit, and the load average when the part began.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measurement import machine, tell

from ablate.store.store import Store

HERE = Path(__file__).resolve().parent
WATCHED_S = 70.0
"""The queue is asked when a view begins and then once a minute, so this sees two questions."""
COMMANDS = ("sbatch", "squeue", "sacct", "sacctmgr", "scontrol", "scancel", "sinfo", "srun")
WRAPPER = """\
#!/bin/sh
printf '%s|%s|{name} %s\\n' "$(date +%s.%N)" "${{SLURM_JOB_ID:-}}" "$*" >> "$ABLATE_CALLS"
exec {program} "$@"
"""
SPEC = """
from ablate import Execution, Grid, LinearFunctions, Measure, ShiftGrid, Slurm, Training, Trial, gpt2, over, principled
from ablate import softmax, ssa

slurm = Slurm(**{slurm})
base = Trial(
    task=LinearFunctions(points=11, batch=32, evaluation=ShiftGrid(sigma_x=(1,), functions=10, sequences=4, points=11)),
    model=gpt2(layers=2, max_positions=32, **{model}),
    operator=ssa(),
    training=Training(steps={steps}),
    execution=Execution(device="{device}", log_every=10),
)
axes = [
    over("operator", [softmax(), ssa(), principled()]),
    over("training.optimiser.lr", [rate / 10_000 for rate in range(1, 51)]),
]
grid = Grid("cluster", base, axes if {axes} else [], seeds=range({seeds}), measure=Measure(name="mse"))
"""


@dataclass
class Bench:
    """The setup that all parts share."""

    root: Path
    slurm: dict[str, Any]
    repeat: int
    device: str

    def prepare(self, name: str, request: dict[str, Any], **fields: Any) -> Path:
        """Make a directory with a spec file and commands that write their calls to calls.log."""
        place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.root))
        slurm = {"gpus": 0, "time": "30m", **self.slurm, **request}
        model = {"heads": 4, "width": 256} if self.device == "cuda" else {"heads": 2, "width": 32}
        fields = {"slurm": slurm, "model": model, "device": self.device, "axes": False, **fields}
        (place / "trials.py").write_text(SPEC.format(**fields))
        (place / "bin").mkdir()
        for command in COMMANDS:
            if program := shutil.which(command):
                (place / "bin" / command).write_text(WRAPPER.format(name=command, program=program))
                (place / "bin" / command).chmod(0o755)
        return place

    def report(self, name: str, values: Sequence[float], unit: str, **more: Any) -> None:
        median, low, high = (float(f"{f(values):.4g}") for f in (statistics.median, min, max))
        tell({"name": name, "value": median, "low": low, "high": high, "n": len(values), "unit": unit, **more})


@contextlib.contextmanager
def start(place: Path, *words: str, log: str = "calls.log") -> Iterator["subprocess.Popen[bytes]"]:
    """Start `ablate` on the campaign in `place`; interrupt it in the end."""
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "ABLATE_CALLS": str(place / log), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "ablate", *words, "--campaign", str(place / "campaign")]
    with subprocess.Popen(command, env={**environ, "PYTHONPATH": str(HERE.parent / "src")}, cwd=place) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)


def finish(place: Path, *words: str) -> float:
    """Run `ablate` to its end and return the seconds."""
    began = time.monotonic()
    with start(place, *words) as process:
        if process.wait():
            raise SystemExit(f"`ablate {' '.join(words)}` ended with {process.returncode}")
    return time.monotonic() - began


def read_calls(log: Path) -> list[tuple[float, str, str]]:
    """Read the time, the job (empty outside of jobs) and the words of each call."""
    lines = [line.split("|", 2) for line in log.read_text().splitlines()] if log.exists() else []
    return sorted((float(at), job, words) for at, job, words in lines)


def count_calls(calls: Sequence[tuple[float, str, str]]) -> dict[str, int]:
    """Count calls by command, and calls of scontrol by its verb."""
    words = (call.split() for _, _, call in calls)
    return dict(Counter(" ".join(each[: 1 + (each[0] == "scontrol")]) for each in words))


def submission(bench: Bench) -> None:
    """Queue 9,000 trials, which begin in an hour; count the files before the first worker, and cancel them."""
    seconds, files, sizes, calls = [], [], [], {}
    request = {"workers": 64, "time": "4h", "extra": {"begin": "now+1hour"}}
    for _ in range(bench.repeat):
        place = bench.prepare("submission", request, steps=1200, axes=True, seeds=60)
        seconds.append(finish(place, "run", "trials.py", "--on", "slurm"))
        found = [path for path in (place / "campaign").rglob("*") if path.is_file()]
        files.append(len(found))
        sizes.append(sum(path.stat().st_size for path in found))
        calls = count_calls(read_calls(place / "calls.log"))
        finish(place, "cancel")
    bench.report("submission", seconds, "s, with the start of the command")
    bench.report("submission.files", files, "files before the first worker")
    bench.report("submission.bytes", sizes, "bytes before the first worker")
    bench.report("submission.calls", [sum(calls.values())], "calls of SLURM's commands", calls=calls)


def packing(bench: Bench) -> None:
    """Count trials per hour of one worker by trials side by side; sizes take turns, so that load hits all."""
    on_gpu = bench.device == "cuda"
    sizes = (1, 2, 4, 8) if on_gpu else (1, 2)
    cpus = min(16, os.cpu_count() or 1) if on_gpu else 2
    rates: dict[int | str, list[float]] = {size: [] for size in sizes}
    for _ in range(bench.repeat):
        for size in sizes:
            seeds = max(8, 4 * size)
            request = {"per_gpu": size, "gpus": int(on_gpu), "cpus": cpus, "workers": 1}
            place = bench.prepare(f"packed-{size}", request, steps=2000 if on_gpu else 120, seeds=seeds)
            finish(place, "run", "trials.py", "--on", "slurm", "--wait")
            rates[size].append(_trials_per_hour(place / "campaign"))
    for size in sizes:
        ratio = statistics.median(rates[size]) / statistics.median(rates[1])
        bench.report(f"packing.per_gpu={size}", rates[size], "trials/hour", ratio=round(ratio, 3), cpus=cpus)


def _trials_per_hour(campaign: Path) -> float:
    """Count from the end of the first trials, one in each slot, to that of the last."""
    with Store.open(campaign) as store:
        rows = store.sql("SELECT started, ended FROM attempt ORDER BY ended").rows()
    slots, ends = sum(started < rows[0][1] for started, _ in rows), [ended for _, ended in rows]
    return float(3600 * (len(ends) - slots) / (ends[-1] - ends[slots - 1]))


def load(bench: Bench) -> None:
    """Count calls by `ablate status --watch`, by `ablate run --wait`, and by workers, one of which is queued again."""
    place = bench.prepare("load", {"workers": 2, "cpus": 1}, steps=300, seeds=2000)
    campaign = place / "campaign"
    with start(place, "run", "trials.py", "--on", "slurm", "--wait") as waiting:
        record = _wait(lambda: list(campaign.glob("submissions/*/submission.json")), waiting)[0]
        jobs = [array.get("job") for kind in json.loads(record.read_text())["classes"] for array in kind["arrays"]]
        began = time.monotonic()
        with start(place, "status", "--watch", log="watch.log") as watching:
            _wait(lambda: list(campaign.glob("trials/*/*/*/end.json")), waiting)
            subprocess.run(["scancel", "--signal=USR2", f"{jobs[0]}_0"], check=True)
            time.sleep(max(0.0, began + WATCHED_S - time.monotonic()))
            if waiting.poll() is not None or watching.poll() is not None:
                raise SystemExit(f"a command ended within {WATCHED_S:.0f} s; run it by itself to see why")
    finish(place, "cancel")
    calls = read_calls(place / "calls.log")
    queued = max(at for at, inside, words in calls if not inside and words.startswith("sbatch"))
    bench.report("load.watch", [_per_minute(read_calls(place / "watch.log"))], "squeue/min")
    waits = [call for call in calls if not call[1] and queued < call[0] < queued + WATCHED_S]
    bench.report("load.run --wait", [_per_minute(waits)], "squeue/min", calls=count_calls(waits))
    workers = [call for call in calls if call[1]]
    bench.report("load.workers", [len(workers)], "calls of 2 workers", calls=count_calls(workers))


def _per_minute(calls: Sequence[tuple[float, str, str]]) -> float:
    """Calls of squeue per minute, from the first to the last; 0 if there are not two."""
    at = [each for each, _, words in calls if words.startswith("squeue")]
    return 60 * (len(at) - 1) / (at[-1] - at[0]) if len(at) > 1 else 0.0


def _wait(look: Callable[[], list[Path]], process: "subprocess.Popen[bytes]") -> list[Path]:
    """Wait until `look` returns something. Raise SystemExit if the process ends before."""
    while not (paths := look()):
        if process.poll() is not None:
            raise SystemExit(f"{process.args!r} ended with {process.returncode}")
        time.sleep(0.5)
    return paths


@contextlib.contextmanager
def find_cluster(place: Path) -> Iterator[str]:
    """Name the cluster at hand, or start that of tests/cluster and stop it in the end."""
    if shutil.which("sinfo") and subprocess.run(["sinfo"], capture_output=True, check=False).returncode == 0:
        yield "the cluster at hand"
        return
    sys.path.insert(0, str(HERE.parent / "tests"))
    from cluster.cluster import Cluster, Shape

    with Cluster(Shape(nodes=2, cpus=max(2, os.cpu_count() or 2), gpus=1), place / "slurm") as made:
        os.environ.update(made.environment)
        yield "the test cluster: 2 nodes that are processes of this machine"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {each.__name__: each for each in (submission, packing, load)}
    parser.add_argument("--part", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--place", type=Path, default=None)
    parser.add_argument("--slurm", type=json.loads, default={})
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.place, ignore_cleanup_errors=True) as place,
        find_cluster(Path(place)) as cluster,
    ):
        tell({**machine(), "cluster": cluster, "device": options.device})
        for part in options.part:
            parts[part](Bench(Path(place).resolve(), options.slurm, options.repeat, options.device))


if __name__ == "__main__":
    main()
