"""A rank other than 0: a process that `rank_launcher` starts."""

import contextlib
import json
import os
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

from ablate.grid import Experiment
from ablate.grid.errors import SpecError
from ablate.runners.child_lifetime import die_with
from ablate.runners.lossy_output import make_output_lossy
from ablate.runners.processes.failure import failure_of
from ablate.runners.processes.process_group import PeerLost, RankPlace, World, join_group
from ablate.runners.processes.rank_launcher import device_of, meeting_store, out_of_memory
from ablate.runners.provenance.specfile import import_spec_file


def main(job: dict[str, Any]) -> None:
    """Run one rank; entry point of its interpreter."""
    if job["local"] == job["rank"]:
        die_with(job["parent"])
        says = job["says"]
    else:  # on another node, where standard output is the pipe
        says = os.dup(1)
        os.dup2(2, 1)
    make_output_lossy()
    with os.fdopen(says, "wb", buffering=0) as pipe:

        def say(word: str, text: str) -> None:
            with contextlib.suppress(BrokenPipeError):  # rank 0 is gone; this process ends soon
                pipe.write(json.dumps({word: text}).encode() + b"\n")

        try:
            trial, train = _load_trial(job), resolve_name(job["train"])
            place = RankPlace(job["rank"], job["size"], job["local"])
            device = device_of(trial.execution.device, place)
            store = meeting_store(job["meeting"], place)
            say("ready", "")
            with join_group(place, device, store):
                train(trial, World(place, device), job["more"])
        except PeerLost as error:
            say("memory" if out_of_memory(error) else "lost", str(error))
            raise SystemExit(1) from None
        except Exception as error:
            failure = failure_of(error)
            say("memory" if failure.reason == "out_of_memory" else "failed", failure.message)
            raise


def _load_trial(job: dict[str, Any]) -> Experiment:
    for file, source in job["files"].items():
        import_spec_file(file, source)
    for name in job["modules"]:
        import_module(name)
    module, name = job["class"]
    trial: Experiment = getattr(import_module(module), name).model_validate(job["spec"])
    if trial.key != job["key"]:
        raise SpecError(f"trial {job['key']} reads back as {trial.key}: its code was edited while it ran; run again")
    return trial
