"""Changes of queries and keys before positions. Each file holds one preparation and is named by its `kind`."""
