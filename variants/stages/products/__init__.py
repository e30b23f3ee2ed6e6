"""How a query and a key become a logit. Each file holds one product and is named by its `kind`."""
