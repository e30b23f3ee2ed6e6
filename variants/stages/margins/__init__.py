"""How the margin over the relevance threshold grows. One margin, one file, named like its `kind`."""
