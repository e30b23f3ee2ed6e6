"""`python -m runners` is the command `ablate`."""

from runners.cli import main

if __name__ == "__main__":
    main()
