"""From scores to weights. One normaliser, one file, named like its `kind`."""
