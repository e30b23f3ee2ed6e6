"""Every figure and table of the five papers, drawn from a campaign's own results; `items.ITEMS` lists them."""
