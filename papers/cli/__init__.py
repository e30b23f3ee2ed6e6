"""The commands `papers` and `published`."""
