"""A second product of query and key that can lower a logit. One gate, one file, named like its `kind`."""
