"""From scores to weights. Each file holds one normaliser and is named by its `kind`."""
