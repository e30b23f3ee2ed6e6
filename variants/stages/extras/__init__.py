"""A learned key and value that every query sees. Each file holds one kind and is named by its `kind`."""
