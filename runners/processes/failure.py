"""Failure records: reason, message, traceback and fingerprint of a failed trial.

Failures with the same fingerprint have the same cause. It is a hash of three things: the exception type; the innermost
function of this project or of the user's spec file; the message without its numbers.
"""

import re
import traceback
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple, cast

from ablate.grid.durations import format_duration
from ablate.grid.errors import EnvironmentProblem
from ablate.runners.processes.training_context import Diverged, Failed, Killed, ProgramFailed
from ablate.runners.provenance.origin import innermost_line, is_installed
from ablate.store.files.error_texts import message_of, traceback_of

Reason = Literal["diverged", "out_of_memory", "error", "killed", "stalled"]

_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)
_BREAKS_CUDA = re.compile(r"CUDA error|Triton Error \[CUDA\]|CUBLAS_STATUS|CUDNN_STATUS|cuDNN error|CUSOLVER_STATUS")


class Failure(NamedTuple):
    """The failure fields of `end.json`."""

    reason: Reason
    message: str
    traceback: str | None
    fingerprint: str


def failure_of(error: BaseException) -> Failure:
    """Describe `error`, raised by training, as a failure; this works for every exception."""
    if isinstance(error, Failed):
        return _told_failure(error)
    message = message_of(error)
    reason = _reason(error, message)
    if isinstance(error, Diverged):
        return Failure(reason, str(error), None, _fingerprint("diverged"))
    fingerprint = _fingerprint(type(error).__name__, _place(error), message)
    return Failure(reason, message, traceback_of(error), fingerprint)


def _told_failure(told: Failed) -> Failure:
    """Describe a failure that training code tells."""
    if isinstance(told, ProgramFailed):
        fingerprint = _fingerprint("program", *told.tail[-1:], exact=told.how)
        return Failure(cast(Reason, told.reason), str(told), "\n".join(told.tail) or None, fingerprint)
    if isinstance(told.error, BaseException):
        failure = failure_of(told.error)
    else:
        failure = Failure("error", told.error, None, _fingerprint("told", _place(told), told.error))
    return failure if told.reason is None else failure._replace(reason=cast(Reason, told.reason))


def unrecorded_failure(error: EnvironmentProblem) -> Failure:
    """Describe a trial that cannot begin or end, since its paths cannot be read or written."""
    return failure_of(error)._replace(message=message_of(error, named=False))


def breaks_process(error: BaseException | None) -> bool:
    """Return True if CUDA may refuse every later call of this process; false for out of memory."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # an error can be its own cause
        seen.add(id(error))
        said = message_of(error)
        of_cuda = type(error).__name__ == "AcceleratorError" or _BREAKS_CUDA.search(said)
        if isinstance(error, RuntimeError) and of_cuda and not _OUT_OF_MEMORY.search(said):
            return True
        error = error.__context__ if error.__cause__ is None else error.__cause__
    return False


def killed_failure(times: int, how: str) -> Failure:
    """Describe a trial whose process died `times` times without progress; `how` names the last exit."""
    hint = "; it may need more memory than there is" if how == "SIGKILL" else ""
    message = f"its process died {times} times without getting further ({how}){hint}"
    return Failure("killed", message, None, _fingerprint("killed", how, ""))


def out_of_memory(times: int) -> Failure:
    """Describe a trial whose process the system killed `times` times for lack of memory."""
    often = "" if times == 1 else f" {times} times"
    message = f"the system killed its process{often}, because the memory of the job was used up; give it more"
    return Failure("out_of_memory", message, None, _fingerprint("killed", "out_of_memory", ""))


def stalled_failure(limit_s: float) -> Failure:
    """Describe a trial that was ended since it made no step for `limit_s` seconds."""
    message = (
        f"no step, evaluated batch or finished phase for {format_duration(limit_s)} (execution.stall); its log shows "
        "where it stood"
    )
    return Failure("stalled", message, None, _fingerprint("stalled"))


def lost_failure(times: int) -> Failure:
    """Describe a trial that `times` workers in a row vanished on."""
    message = (
        f"{times} workers in a row were lost on it and left neither a record nor a checkpoint: killed, or their nodes "
        "failed; it may need more memory than there is, or a shorter checkpoint interval"
    )
    return Failure("killed", message, None, _fingerprint("killed", "lost", ""))


def fruitless_failure(times: int, step: int) -> Failure:
    """Describe a trial of which `times` attempts in a row saved nothing beyond `step`."""
    message = (
        f"{times} workers in a row trained it for long without a checkpoint beyond step {step} or a result of an "
        "evaluation; give workers a longer --time, or shorten the evaluation or the checkpoint interval"
    )
    return Failure("killed", message, None, _fingerprint("killed", "fruitless", ""))


def _reason(error: BaseException, said: str) -> Reason:
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, Killed):
        return "killed"
    if isinstance(error, MemoryError):
        return "out_of_memory"
    if isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(said):  # torch's own class is a RuntimeError
        return "out_of_memory"
    return "error"


def _place(error: BaseException) -> str:
    """Return `file:function` of the innermost frame of the project or the user; line numbers change too often."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if not is_installed(frame.filename)] or list(frames)
    return f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else ""


def place_of(failure: Failure) -> str:
    """Return `file:line` of the innermost frame of the project or the user in the traceback; empty without one."""
    frames = re.findall(r'^ *File "(.+)", line (\d+)', failure.traceback or "", re.MULTILINE)
    return innermost_line(frames, project=True)


def _fingerprint(*parts: str, exact: str = "") -> str:
    blotted = [exact] * bool(exact) + [re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?", "#", part) for part in parts]
    return blake2b("\n".join(blotted).encode(), digest_size=8).hexdigest()
