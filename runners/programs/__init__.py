"""Programs in any language as trials: their command line, their process, their seeds, and the values they report."""
