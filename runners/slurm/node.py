"""Where jobs that were queued before find the program of a worker task."""

import sys

from ablate.runners.backends.slurm.node import main

if __name__ == "__main__":
    sys.exit(main())
