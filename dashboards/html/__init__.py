"""HTML documents and the blocks that pages and reports are made of."""
