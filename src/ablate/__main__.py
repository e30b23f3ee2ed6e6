"""`python -m ablate` is the command `ablate`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory, which the command does not import from, either
    from ablate.runners.cli.app import main

    main()
