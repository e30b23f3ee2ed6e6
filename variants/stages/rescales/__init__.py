"""Changes of a row of weights after normalisation. Each file holds one rule and is named by its `kind`."""
