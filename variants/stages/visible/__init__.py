"""Which keys a query sees. One rule, one file, named like its `kind`."""
