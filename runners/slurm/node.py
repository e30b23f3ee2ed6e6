"""A worker task on its node: `python -u -m runners.slurm.node ROOT SUBMISSION CLASS_INDEX FIRST`.

The batch script acts on its exit code:

    0   nothing is left for it
    86  the same, and some trials failed in it
    85  rows are left, and its time is over: queue it again
    87  this node's environment cannot run the submission: queue it again, elsewhere
    88  no time was left to begin anything in, and the next life would have no more: it is over
    89  the campaign's disk is full: queue it again, and count no death
    1   something unexpected, told on stderr

Signals are handled before anything that takes time to import.
"""

import sys

from runners.slurm.worker.signals import ignore, listen


def main() -> int:
    """Run the task of the command line; return the exit code."""
    signals = listen()
    from runners.slurm.worker.assignment import Arguments
    from runners.slurm.worker.supervisor import supervise

    root, submission, index, first = sys.argv[1:]
    try:
        return supervise(Arguments(root, submission, int(index), int(first)), signals)
    finally:
        ignore()


if __name__ == "__main__":
    sys.exit(main())
