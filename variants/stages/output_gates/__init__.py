"""Factors of a head's output. One gate, one file, named like its `kind`."""
