"""How long it takes to submit 10,000 trials to the cluster at hand, where the time goes, and how many files there are.

    SLURM_CONF=... python benchmarks/submission.py [CAMPAIGN]

The jobs are cancelled again. Planning (walking the cells, surveying the trials) is told apart from submission.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from runners.finding import choose_grids
from runners.scheduler_news import Slurm as Scheduler
from runners.slurm.spec import Slurm
from runners.slurm.submit import SubmitOptions, Submitter
from runners.specfile import load_spec_file

SPEC = Path(__file__).parent.parent / "specs" / "quickstart.py"
TRIALS = 10_000

Result = TypeVar("Result")


def timed(what: str, work: Callable[[], Result]) -> Result:
    """Do the work and say how long it took."""
    began = time.perf_counter()
    found = work()
    print(f"{time.perf_counter() - began:7.2f} s  {what}")
    return found


def main() -> None:
    """Submit, count, cancel."""
    (grid,) = choose_grids(load_spec_file(SPEC), None, one=True)
    cells = sum(1 for _ in grid.cells())
    grid = replace(grid, seeds=range(TRIALS // cells))
    request = Slurm(gpus=0, workers=64, time="4h")
    with tempfile.TemporaryDirectory() as place:
        root = Path(sys.argv[1] if len(sys.argv) > 1 else place) / "campaign"
        options = SubmitOptions(files=(SPEC,))
        timed("trials enumerated once", lambda: sum(1 for _ in grid.trials()))
        submitter = timed("planned", lambda: Submitter(root, [grid], request, Scheduler(), options))
        queued = timed("submitted", lambda: submitter.submit(print))
        timed(
            "submitted again: nothing to do",
            lambda: Submitter(root, [grid], request, Scheduler(), options).submit(print),
        )
        assert queued.record is not None
        files = [path for path in root.rglob("*") if path.is_file() and path.parent.name not in ("logs", "workers")]
        print(f"{queued.draft.trials} trials, {len(queued.record.jobs)} calls of sbatch, {len(files)} files")
        subprocess.run(["scancel", *map(str, queued.record.jobs)], check=True)
        time.sleep(5)


if __name__ == "__main__":
    main()
