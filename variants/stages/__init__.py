"""The stages of an operator: one file for each family of choices."""
