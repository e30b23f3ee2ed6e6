"""Exit codes of a worker task. `worker.sh` acts on them; docs/administrators.md lists what SLURM does then."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Why a worker task ended."""

    DONE = 0
    """No row is left for it."""
    UNEXPECTED = 1
    """A bug, or a file system that does not answer; the log has it. SLURM counts it as a death, as every other code."""
    AGAIN = 85
    """Rows are left, and its time is over: queue it again."""
    SOME_FAILED = 86
    """No row is left for it, and some trials failed in it."""
    REFUSED = 87
    """This node's environment cannot run the submission: queue it again, elsewhere."""
    LATE = 88
    """No time was left to begin anything in, and the next life would have no more."""
    FULL = 89
    """The campaign's disk is full: queue it again, and count no death."""
