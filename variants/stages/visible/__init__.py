"""Which keys a query sees. Each file holds one rule and is named by its `kind`."""
