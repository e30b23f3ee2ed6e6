"""Changes of a logit before the position bias. Each file holds one transform and is named by its `kind`."""
