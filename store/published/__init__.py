"""Published results: every cell of the tables of the papers.

The cells are data of this package (`tables.json`), one row of the table `published` each. `docs/published.md` says what
a column means and what a comparison promises.
"""
