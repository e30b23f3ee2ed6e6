"""How much a key counts before normalisation. One score, one file, named like its `kind`."""
