"""How a query and a key become a logit. One product, one file, named like its `kind`."""
