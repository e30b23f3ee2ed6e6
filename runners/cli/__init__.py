"""What the command `ablate` can do, one function per verb; `runners.cli.app` gathers them."""
