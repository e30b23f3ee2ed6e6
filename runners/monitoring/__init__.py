"""Looking after a campaign: where its trials are, what failed and why, calling off, trying again."""
