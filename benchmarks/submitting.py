"""One submission of 10,000 trials to the cluster at hand, in a process of its own; a JSON object on stdout.

python benchmarks/submitting.py CAMPAIGN REQUEST

REQUEST are fields of `Slurm` as JSON. The jobs are to begin in an hour, so files are counted before the first worker
starts, and they are cancelled before this ends.
"""

import json
import sys
from pathlib import Path
from typing import Any

from spans import Spans

SPEC = Path(__file__).with_name("ten_thousand.py")
REQUEST = {"gpus": 0, "time": "4h", "workers": 64, "extra": {"begin": "now+1hour"}}


def main(root: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Submit, count, cancel; seconds by part."""
    spans = Spans()
    with spans.span("import"):
        from runners.provenance.specfile import load_spec_file
        from runners.slurm.scheduler import SlurmScheduler as Scheduler, TaskId, cancel
        from runners.slurm.spec import Slurm
        from runners.slurm.submit import submit
    _watch(spans)
    with spans.span("planning: load the spec"):
        grids = list(load_spec_file(SPEC).values())
    with spans.span("planning: the rest"):
        options = submit.SubmitOptions(files=(SPEC,))
        drafter = submit.Drafter(root, grids, Slurm(**{**REQUEST, **request}), Scheduler(), options)
    with spans.span("submission: the rest"):
        queued = submit.submit(drafter, lambda _: None)
    assert queued.record is not None
    files = [path for path in root.rglob("*") if path.is_file()]
    cancel(TaskId(job) for job in queued.record.jobs)
    return {
        "trials": queued.draft.trials,
        "arrays": len(queued.record.jobs),
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "parts": dict(spans.seconds),
    }


def _watch(spans: Spans) -> None:
    from runners.slurm.submit import draft, submit
    from runners.slurm.submit.draft import Drafter
    from runners.slurm.submit.job_arrays import Arrays

    for owner, name, label in (
        (draft, "read_limits", "planning: ask the cluster for its limits"),
        (draft, "walk", "planning: walk the cells"),
        (draft, "survey", "planning: enumerate and survey the trials"),
        (draft, "pack", "planning: pack the snapshot"),
        (Arrays, "test", "submission: sbatch --test-only"),
        (Drafter, "drafted", "submission: draft"),
        (submit, "half_submitted", "submission: look for half a submission"),
        (submit, "record", "submission: record of the environment"),
        (submit, "write_grid", "submission: write the grid"),
        (submit, "write_submission", "submission: write the manifest"),
        (submit, "write", "submission: write the snapshot"),
        (submit, "write_submission_record", "submission: write submission.json"),
        (Arrays, "submit_held", "submission: sbatch"),
        (submit, "release", "submission: scontrol release"),
    ):
        spans.watch(owner, name, label)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]).resolve() / "campaign", json.loads(sys.argv[2]))))
