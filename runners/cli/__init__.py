"""The verbs of the command `ablate`, one function each; `ablate.runners.cli.commands` gathers them."""
