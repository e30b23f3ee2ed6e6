"""Why a trial failed, in the words of the records: a reason, a message, a traceback, and a fingerprint.

Failures with one fingerprint have one cause. The fingerprint is a hash of the exception type, the message without its
numbers, and the innermost function of this project or of the user's spec file.
"""

import re
import sysconfig
import traceback
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

from runners.training.training_context import Diverged, Killed

Reason = Literal["diverged", "out_of_memory", "error", "killed"]

_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)
_BREAKS_CUDA = re.compile(r"CUDA error|Triton Error \[CUDA\]|CUBLAS_STATUS|CUDNN_STATUS|cuDNN error|CUSOLVER_STATUS")
_PROJECT = Path(__file__).resolve().parents[2]
_ROOMS = ("grid", "variants", "runners", "store")


class Failure(NamedTuple):
    """The failure of an attempt, as in `end.json`."""

    reason: Reason
    message: str
    traceback: str | None
    fingerprint: str


def failure_of(error: Exception) -> Failure:
    """The failure that `error`, raised by training, stands for."""
    reason = _reason(error)
    if isinstance(error, Diverged):
        return Failure(reason, str(error), None, _fingerprint("diverged"))
    text = "".join(traceback.format_exception(error))
    message = f"{type(error).__name__}: {error}".removesuffix(": ")
    return Failure(reason, message, text, _fingerprint(type(error).__name__, _place(error), message))


def breaks_process(error: BaseException | None) -> bool:
    """Whether CUDA may refuse every later call of the process that met `error`; want of memory is not such an error."""
    while error is not None:
        of_cuda = type(error).__name__ == "AcceleratorError" or _BREAKS_CUDA.search(str(error))
        if isinstance(error, RuntimeError) and of_cuda and not _OUT_OF_MEMORY.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def killed(times: int, how: str) -> Failure:
    """The failure of a trial whose process died `times` times without getting further; `how` names the last death."""
    message = f"its process died {times} times without getting further ({how}); it may need more memory than there is"
    return Failure("killed", message, None, _fingerprint("killed", how, ""))


def out_of_memory(times: int) -> Failure:
    """The failure of a trial whose process the system killed `times` times, as the memory of its job was used up."""
    often = "" if times == 1 else f" {times} times"
    message = f"the system killed its process{often}, because the memory of the job was used up; give it more"
    return Failure("out_of_memory", message, None, _fingerprint("killed", "out_of_memory", ""))


def lost(times: int) -> Failure:
    """The failure of a trial that `times` workers in a row vanished over."""
    message = (
        f"{times} workers in a row vanished over it without a word and without a checkpoint: killed, or their nodes "
        "failed; it may need more memory than there is, or a shorter checkpoint interval"
    )
    return Failure("killed", message, None, _fingerprint("killed", "lost", ""))


def _reason(error: Exception) -> Reason:
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, Killed):
        return "killed"
    if isinstance(error, MemoryError):
        return "out_of_memory"
    if isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)):  # torch's own class is a RuntimeError
        return "out_of_memory"
    return "error"


def _place(error: Exception) -> str:
    """`file:function` of the innermost frame that is ours or the user's; line numbers change too easily."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if _is_ours(frame.filename)] or list(frames)
    return f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else ""


def _is_ours(file: str) -> bool:
    path = Path(file)
    if any(path.is_relative_to(_PROJECT / room) for room in _ROOMS):
        return True
    return path.is_file() and not any(path.is_relative_to(place) for place in _package_folders())


@cache
def _package_folders() -> tuple[str, ...]:
    """Where Python and its packages live; a file elsewhere is the user's."""
    paths = sysconfig.get_paths()
    return tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _fingerprint(*parts: str) -> str:
    blotted = [re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?", "#", part) for part in parts]
    return blake2b("\n".join(blotted).encode(), digest_size=8).hexdigest()
