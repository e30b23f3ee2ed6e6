"""From missing trials to queued workers: classes, limits, scripts, and what can be wrong with them."""
