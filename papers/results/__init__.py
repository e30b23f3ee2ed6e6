"""Results of the papers' grids that a repository keeps."""
