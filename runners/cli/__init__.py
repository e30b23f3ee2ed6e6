"""The verbs of the command `ablate`, one function each; `runners.cli.app` gathers them."""
