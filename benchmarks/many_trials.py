"""Seconds that `ablate cancel`, `ablate status` and the functions under it take over a campaign of very many trials.

python benchmarks/many_trials.py [--trials 100000] [--repeat 3] [--campaign DIRECTORY]

Every tenth trial has failed and the last hundredth has not begun; ninety finished trials share a shard. The first calls
find a database that knows the plans alone, or none. The commands have no scheduler to ask. A campaign that is there is
used again, without these first calls.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from big_campaign import SUBMISSION, join, judged, write_attempt, write_plan, write_rows
from measurement import machine, read_options, report, tell, took

from ablate.runners.attempts.submission_record import Array, ResourceClass, Submission, write_submission_record
from ablate.runners.attempts.worker_records import cancelled_path
from ablate.store.files.change_tracker import SETTLED_S
from ablate.store.files.layout import Layout
from ablate.store.ingest.ingest import ingest
from ablate.store.store import Store

WORKERS = 100
ENVIRONMENT = {**os.environ, "PATH": "/nowhere"}
"""Without a scheduler."""


def main() -> None:
    options = read_options(__doc__, trials=100_000, repeat=3)
    tell({**machine(), "trials": options.trials})
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(options.campaign or Path(folder) / "campaign")
        if not layout.exists():
            measure_behind(layout, options.trials, options.repeat)
        report("first_ingest", [took(lambda: ingest(layout))])
        time.sleep(SETTLED_S)  # until then directories that were just written are read again
        report("every_trial", [took(lambda: ingest(layout)) for _ in range(options.repeat)])
        report("what_changed", [took(lambda: ingest(layout, thorough=False)) for _ in range(options.repeat)])
        with Store.open(layout.root, refresh=False) as store:
            report("progress", [took(partial(store.progress, "large")) for _ in range(options.repeat)], target_s=1)
            report("warnings", [took(store.warnings) for _ in range(options.repeat)], target_s=1)
        report("ablate_status", [took(lambda: ablate("status", layout)) for _ in range(options.repeat)], target_s=1)


def measure_behind(layout: Layout, trials: int, repeat: int) -> None:
    """Write the campaign; measure `cancel` and `status` on a store that is behind, and without a store."""
    keys = write_plan(layout, trials)
    resources = ResourceClass("all", (0, trials), {"time": 60, "gpus": 1}, WORKERS, (Array(0, WORKERS, 7),))
    write_submission_record(layout, Submission(SUBMISSION, "slurm", time.time(), {}, classes=(resources,)))
    report("ingest_of_plans", [took(lambda: ingest(layout))])
    write(layout, keys)
    tell({"name": "campaign", "files": sum(len(files) for _, _, files in os.walk(layout.root))})
    for store in ("behind", "absent"):
        if store == "absent":
            shutil.rmtree(layout.store)
        measure_cancel(f"ablate_cancel_store_{store}", layout)
        measure_status(f"ablate_status_store_{store}", layout, repeat)


def write(layout: Layout, keys: list[str]) -> None:
    """Write the attempts of all but the last hundredth of the trials, and their evaluations."""
    begun = keys[: len(keys) - len(keys) // 100]
    for number, key in enumerate(begun):
        write_attempt(layout, key, "ok" if number % 10 else "failed")
    for number in range(0, len(begun), 100):
        each = [judged(key) for at, key in enumerate(begun[number : number + 100]) if at % 10]
        write_rows(layout, "evaluation", join(each), number)


def measure_status(name: str, layout: Layout, repeat: int) -> None:
    """Time `ablate status`, and print what it says about its store."""
    said: list[str] = []
    report(name, [took(lambda: said.append(ablate("status", layout))) for _ in range(repeat)], target_s=5)
    tell({"name": f"{name}_says", "stderr": [line for text in said for line in text.splitlines() if "read" in line]})


def measure_cancel(name: str, layout: Layout) -> None:
    """Time `ablate cancel` until its file is there, and until it ends."""
    file = cancelled_path(layout, SUBMISSION)
    began, cpu = time.perf_counter(), sum(os.times()[:4])
    with subprocess.Popen(command("cancel", layout), env=ENVIRONMENT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not file.exists():
            time.sleep(0.01)
        written_s = time.perf_counter() - began
    spent = {"command_s": time.perf_counter() - began, "cpu_s": sum(os.times()[:4]) - cpu}
    line = {key: round(value, 3) for key, value in {"written_s": written_s, **spent}.items()}
    tell({"name": name, **line, "target_s": 2, "met": file.exists() and written_s <= 2, "load": os.getloadavg()[0]})
    file.unlink()


def ablate(name: str, layout: Layout) -> str:
    """Run a command; return what it wrote to stderr."""
    return subprocess.run(command(name, layout), check=True, env=ENVIRONMENT, capture_output=True, text=True).stderr


def command(name: str, layout: Layout) -> list[str]:
    return [str(Path(sys.executable).with_name("ablate")), name, "--campaign", str(layout.root)]


if __name__ == "__main__":
    main()
