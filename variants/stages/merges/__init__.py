"""How the maps of several signals become one. Each file holds one merge and is named by its `kind`."""
