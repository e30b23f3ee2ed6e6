"""Changes of a row of weights after normalisation. One rule, one file, named like its `kind`."""
