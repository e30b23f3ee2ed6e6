"""How a model knows order. Each file holds one scheme and is named by its `kind`."""
