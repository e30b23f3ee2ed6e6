"""A second product of query and key that can lower a logit. Each file holds one gate and is named by its `kind`."""
