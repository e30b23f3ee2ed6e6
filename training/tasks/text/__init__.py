"""Tasks on text, and how text becomes tokens."""
