"""Forgetting: lowers a logit because of the tokens in between. One rule, one file, named like its `kind`."""
