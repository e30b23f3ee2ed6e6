"""How the maps of several signals become one. One merge, one file, named like its `kind`."""
