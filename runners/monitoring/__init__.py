"""Looking after a campaign: where its trials are, what failed and why, cancelling, trying again."""
