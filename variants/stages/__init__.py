"""The stages of an operator: one folder for each family of choices."""
