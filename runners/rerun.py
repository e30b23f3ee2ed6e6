"""The process of `ablate repro`: trains one trial of a manifest, with the code of its snapshot.

Which trials run again is decided in `ablate.runners.planning.worklist`.

`python -P -m ablate.runners.rerun REQUEST`, with a JSON object:

    root, submission    a campaign and the submission in it whose manifest has the trial in its first row
    trial, train        what releases before `Experiment` train, and how; not read any more
    files               spec files to load
    tree                directory that the project must be imported from; null: any

With exit status 0, the campaign holds the outcome. The request format is the same for older versions.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.grid.errors import AblateError, EnvironmentProblem
from ablate.runners.attempts.run_request import OF_TRIALS, RunRequest
from ablate.runners.attempts.worker import Listener, Worker
from ablate.runners.output import say
from ablate.runners.provenance.origin import PACKAGE


class _Silent(Listener):
    """Ignores all events."""


def rerun(request: Mapping[str, Any]) -> None:
    """Train the trial.

    Raises:
        EnvironmentProblem: the project was imported from outside the tree, or the campaign cannot be written.
        SpecError: a spec file cannot be loaded.
    """
    tree = request["tree"]
    if tree is not None and not PACKAGE.resolve().is_relative_to(Path(tree).resolve()):
        raise EnvironmentProblem(f"{PACKAGE} comes before the submitted tree {tree} on Python's path; unset PYTHONPATH")
    files = tuple(Path(file) for file in request["files"])
    job = RunRequest(Path(request["root"]), request["submission"], files, preload=OF_TRIALS, callbacks=False)
    Worker(job, 0, _Silent(), own_process=True).run(0)


def main() -> None:
    """Run the request in `sys.argv[1]`; print an error as one sentence."""
    try:
        rerun(json.loads(sys.argv[1]))
    except AblateError as error:
        say(str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
