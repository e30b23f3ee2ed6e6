"""How much a key counts before normalisation. Each file holds one score and is named by its `kind`."""
