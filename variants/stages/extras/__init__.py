"""A learned key and value that every query sees. One kind, one file, named like it."""
