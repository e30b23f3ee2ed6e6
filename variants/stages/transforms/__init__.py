"""Changes of a logit before the position bias. One transform, one file, named like its `kind`."""
