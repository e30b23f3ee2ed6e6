"""The verbs of the command `ablate`, one function each; `ablate.runners.cli.app` gathers them."""
