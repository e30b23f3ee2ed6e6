"""How the margin over the relevance threshold grows. Each file holds one margin and is named by its `kind`."""
