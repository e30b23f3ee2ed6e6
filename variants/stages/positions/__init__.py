"""How a model knows order. One scheme, one file, named like its `kind`."""
