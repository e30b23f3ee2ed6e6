"""A module per paper with its tables and figures as grids: entry points of `ablate.grids`."""
