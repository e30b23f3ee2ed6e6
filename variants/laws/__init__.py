"""The battery: laws that every operator keeps, or says that it breaks, and an oracle in plain floats."""
