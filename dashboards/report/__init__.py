"""The report of a campaign: one HTML file."""
