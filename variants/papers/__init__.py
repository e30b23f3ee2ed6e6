"""The operators of the papers, by name."""
