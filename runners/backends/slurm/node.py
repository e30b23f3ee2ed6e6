"""A worker task on its node: `python -u -m ablate.runners.backends.slurm.node ROOT SUBMISSION CLASS_INDEX FIRST`.

The batch script acts on its exit code, an `ExitCode`.

Signals are handled before anything that takes time to import.
"""

import sys

from ablate.runners.backends.slurm.worker.signals import ignore, listen
from ablate.runners.lossy_output import make_output_lossy


def main() -> int:
    """Run the task of the command line; return the exit code."""
    signals = listen()
    make_output_lossy()
    from ablate.runners.backends.slurm.worker.assignment import Arguments
    from ablate.runners.backends.slurm.worker.supervisor import supervise

    root, submission, index, first = sys.argv[1:]
    try:
        return supervise(Arguments(root, submission, int(index), int(first)), signals)
    finally:
        ignore()


if __name__ == "__main__":
    sys.exit(main())
