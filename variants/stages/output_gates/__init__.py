"""Factors of a head's output. Each file holds one gate and is named by its `kind`."""
