"""What is done to a logit. One transform, one file, named like its `kind`."""
