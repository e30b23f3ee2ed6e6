"""What the papers published: every cell of their tables, and what one's own results say of it.

The cells are data of this package (`tables.json`), one row of the table `published` each. `docs/published.md` says what
a column means and what a comparison promises.
"""
