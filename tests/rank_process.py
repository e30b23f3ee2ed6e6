"""Training as one of the ranks that a launcher started, or as rank 0 that starts its own; what it measured as JSON.

    python rank_process.py '{"trial": {...}, "out": folder, "double": bool, "stop_at": {rank: [step]}, "pause_at": n}'

A rank writes `<out>/rank-<n>.json`. At `pause_at` it writes the process ids of its children and waits to be killed.
"""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from double_precision import in_double

from ablate.runners.processes.training_context import NullContext
from ablate.store.files.atomic import write_json
from ablate.training.loop.train import train
from ablate.training.trial import Trial


class Recorded(NullContext):
    """Keeps numbers by name, stops and pauses where it is told to."""

    def __init__(self, job: dict[str, Any], rank: str) -> None:
        super().__init__(lambda: self.step in job.get("stop_at", {}).get(rank, []))
        self._job, self.step, self.numbers = job, 0, dict[str, float]()

    def metrics(self, step, values) -> None:
        self.numbers |= {f"{step} {name}": value for name, value in values.items()}
        self.progress(step, 0, 0.0)

    def evaluation(self, step, name, value, *, point, items, se_items) -> None:  # noqa: ARG002
        self.numbers[f"{step} {name} {sorted(point.items())}"] = value

    def progress(self, step, steps, loss) -> None:  # noqa: ARG002
        self.step = step
        if step == self._job.get("pause_at"):
            write_json(Path(self._job["out"], "children.json"), {"pids": children()})
            while True:
                time.sleep(1)


class Counting(Recorded):
    """On a rank other than 0 nothing is told: its steps are the times it is asked whether to stop."""

    def stop_requested(self) -> bool:
        self.step += 1
        return super().stop_requested()


def children() -> list[int]:
    """Processes that this one started and that are there."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found += map(int, (task / "children").read_text().split())
    return found


def main() -> None:
    job = json.loads(sys.argv[1])
    rank = os.environ.get("RANK", "0")
    with pytest.MonkeyPatch.context() as patch:
        if job.get("double"):
            in_double(patch)
        world = (Recorded if rank == "0" else Counting)(job, rank)
        finished = train(Trial.model_validate(job["trial"]), world)
    found = {"step": finished.step, "stopped": finished.stopped, "numbers": world.numbers}
    Path(job["out"], f"rank-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
