"""Published results: every cell of the tables of the papers; docs/published.md says what a comparison promises."""
