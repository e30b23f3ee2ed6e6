"""What operators are and whether they are right, collected from the code itself."""
