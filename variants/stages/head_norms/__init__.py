"""Norms of a head's output vector. One norm, one file, named like its `kind`."""
