"""Seconds that `ablate cancel`, `ablate status` and an ingest take over a campaign of very many trials.

python benchmarks/many_trials.py [--trials 100000] [--repeat 3] [--campaign DIRECTORY]

Every tenth trial has failed and the last hundredth has not begun; ninety finished trials share a shard. The first
commands find a database that knows the plans alone, then none. They have no scheduler to ask. A campaign that is there
is used again, without these first commands.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from measurement import machine, read_options, report, tell, took

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from synthetic import MEASURE, SUBMISSION, plan_header, plan_lines, publish_grid, write_end, write_start

from runners.attempts.submission_record import (
    Array,
    ResourceClass,
    Submission,
    write_submission_record,
)
from runners.slurm.worker_records import cancelled_path
from store.files.change_tracker import SETTLED_S
from store.files.layout import Layout
from store.files.shards import ShardBuffer
from store.ingest.ingest import ingest
from store.store import Store

SEEDS = 10
WORKERS = 100
ENVIRONMENT = {**os.environ, "PATH": "/nowhere"}
"""Without a scheduler."""


def main() -> None:
    """Measure and print."""
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
    widths = {"width": range(trials // SEEDS)}
    lines = plan_lines(["softmax"], range(SEEDS), "large", widths)
    publish_grid(layout, plan_header(lines, "large", widths, ["softmax"]), lines)
    resources = ResourceClass("all", (0, trials), {"time": 60, "gpus": 1}, WORKERS, (Array(0, WORKERS, 7),))
    write_submission_record(layout, Submission(SUBMISSION, "slurm", time.time(), {}, classes=(resources,)))
    report("ingest_of_plans", [took(lambda: ingest(layout))])
    write_attempts(layout, [line["trial"] for line in lines])
    tell({"name": "campaign", "files": sum(len(files) for _, _, files in os.walk(layout.root))})
    for store in ("behind", "absent"):
        if store == "absent":
            shutil.rmtree(layout.store)
        report(f"ablate_cancel_store_{store}", [took(lambda: ablate("cancel", layout))], target_s=2)
        cancelled_path(layout, SUBMISSION).unlink()
        runs = [took(lambda: ablate("status", layout)) for _ in range(repeat)]
        report(f"ablate_status_store_{store}", runs, target_s=5)


def write_attempts(layout: Layout, keys: list[str]) -> None:
    """Write the attempts of all but the last hundredth of the trials, and their evaluations."""
    buffer = ShardBuffer(layout, submission=SUBMISSION, worker=0)
    for number, key in enumerate(keys[: len(keys) - len(keys) // 100]):
        write_start(layout, key, 1)
        write_end(layout, key, 1, **({} if number % 10 else {"status": "failed", "reason": "diverged"}))
        if number % 10:
            buffer.extend("evaluation", [(key, 1, 60, "mse", MEASURE["point"], 1 + number % 7, 100, 0.01)])
        if number % 100 == 99:
            buffer.flush("nothing")


def ablate(name: str, layout: Layout) -> None:
    """Run a command; without a scheduler, `cancel` writes its file and fails."""
    command = [str(Path(sys.executable).with_name("ablate")), name, "--campaign", str(layout.root)]
    subprocess.run(command, check=name != "cancel", env=ENVIRONMENT, capture_output=True)


if __name__ == "__main__":
    main()
