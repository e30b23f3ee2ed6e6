"""`python -m runners` is the command `ablate`."""

from runners.cli.app import main

if __name__ == "__main__":
    main()
