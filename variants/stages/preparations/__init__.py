"""Changes of queries and keys before positions. One preparation, one file, named like its `kind`."""
