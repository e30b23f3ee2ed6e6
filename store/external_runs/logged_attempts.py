"""An attempt of a logged run: claimed while no live process has it, and what its `end.json` says."""

import sys
import time
import traceback
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from grid.errors import EnvironmentProblem, SpecError
from store.files.atomic import write_atomic
from store.files.attempts import begin, end_record, start_record, write_end
from store.files.layout import Layout
from store.files.removals import next_attempt
from store.files.trial_status import TrialState, trial_state

REASONS: Final = ("diverged", "out_of_memory", "error", "killed")
"""Why an attempt can have failed."""


def claim(layout: Layout, trial: str, submission: str, code: str | None, named: str) -> dict[str, Any]:
    """Begin the next attempt of `trial`, made by this version of the `code`: its `start.json`.

    Raises SpecError: a live process is at it; `named` is how the run is called there; EnvironmentProblem: the campaign
    cannot be written.
    """
    while True:
        number = next_attempt(layout, trial)
        require_free(trial_state(layout, trial), named)
        start = start_record(trial, number)
        torch = start["versions"]["torch"] if "torch" in sys.modules else None
        versions = {**start["versions"], "torch": torch, "script": _script()}
        start |= {"submission": submission, "worker": 0, "code": code, "versions": versions}
        if begin(layout, start):
            return start


def require_free(state: TrialState, named: str) -> None:
    """Refuse a trial that a live process logs. Raises SpecError: it is one; says which process."""
    if state.live is not None:
        start = state.live.start
        raise SpecError(
            f"one process logs a run; {named} is being logged by process {start.get('pid')} on {start.get('host')}, "
            "wait for its end, or choose another seed or label"
        )


def _script() -> str | None:
    """The file that this process runs, and a hash of its text; None in a notebook or at a prompt."""
    named = getattr(sys.modules.get("__main__"), "__file__", None)
    if named is None:
        return None
    try:
        return f"{Path(named).name} {blake2b(Path(named).read_bytes(), digest_size=6).hexdigest()}"
    except OSError:  # it has been moved since
        return Path(named).name


def end(layout: Layout, start: Mapping[str, Any], step: int, outcome: Mapping[str, Any]) -> None:
    """Write the attempt's `end.json`; `outcome` is its status, and why where it is not ok.

    Raises EnvironmentProblem: the campaign is gone, or cannot be written.
    """
    trial, attempt = start["trial"], start["attempt"]
    if not layout.start(trial, attempt).exists():
        raise EnvironmentProblem(f"{layout.start(trial, attempt)} is gone: the campaign was moved or removed meanwhile")
    record = end_record(trial, attempt, step, max(0.0, time.time() - start["started"]))
    said = outcome.get("traceback") or outcome.get("message")
    if said:
        write_atomic(layout.log(trial, attempt), f"{said.rstrip()}\n".encode("utf-8", "replace"))
    write_end(layout, {**record, **outcome})


def failure(error: BaseException | str, reason: str | None) -> dict[str, Any]:
    """Return the `end.json` of a run that failed with `error`. Raises SpecError: the reason is none of `REASONS`."""
    if reason is not None and reason not in REASONS:
        raise SpecError(f"a run fails for one of the reasons {', '.join(REASONS)}; got {reason!r}")
    if isinstance(error, str):
        return {"status": "failed", "reason": reason or "error", "message": error}
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    short = isinstance(error, MemoryError) or "out of memory" in text.lower()
    return {
        "status": "failed",
        "reason": reason or ("out_of_memory" if short else "error"),
        "message": text,
        "traceback": "".join(traceback.format_exception(error)),
    }
