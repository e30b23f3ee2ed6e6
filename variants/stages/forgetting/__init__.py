"""Forgetting: lowers a logit because of the tokens in between. Each file holds one rule and is named by its `kind`."""
