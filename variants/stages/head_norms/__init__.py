"""Norms of a head's output vector. Each file holds one norm and is named by its `kind`."""
