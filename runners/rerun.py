"""One trial of a manifest, trained in this process, whose import path is that of the tree it was submitted with.

`python -P -m runners.rerun REQUEST`, with a JSON object:

    root, submission    a campaign and the submission in it whose manifest has the trial in its first row
    trial, train        references as in `runners.attempts.worker.WorkerEntry`
    files               spec files to load
    tree                the directory that the project must come from; null: from anywhere

Exit status 0: the records of the campaign say what became of it. Trees of older versions are asked in the same way.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from grid.errors import AblateError, EnvironmentProblem
from runners.attempts.worker import Job, Worker, WorkerEntry
from runners.output import say
from runners.provenance.origin import PROJECT


def rerun(request: Mapping[str, Any]) -> None:
    """Train the trial.

    Raises:
        EnvironmentProblem: the project was imported from outside of the tree, or the campaign cannot be written.
        SpecError: a spec file or the entry cannot be loaded.
    """
    tree = request["tree"]
    if tree is not None and not PROJECT.is_relative_to(Path(tree).resolve()):
        raise EnvironmentProblem(f"{PROJECT} comes before the submitted tree {tree} on Python's path; unset PYTHONPATH")
    entry = WorkerEntry(trial=request["trial"], train=request["train"])
    files = tuple(Path(file) for file in request["files"])
    job = Job(Path(request["root"]), request["submission"], entry, files=files)
    Worker(job, 0, _Alone(), own_process=True).run(0)


def main() -> None:
    """Entry of the process; errors are one sentence on stderr."""
    try:
        rerun(json.loads(sys.argv[1]))
    except AblateError as error:
        say(str(error))
        sys.exit(error.exit_code)


@final
class _Alone:
    """Nobody listens."""

    def stop_requested(self) -> bool:
        return False

    def started(self, row: int, attempt: int, step: int) -> None:
        del row, attempt, step

    def stepped(self, row: int, step: int, steps: int, loss: float) -> None:
        del row, step, steps, loss


if __name__ == "__main__":
    main()
