"""What a result was made with: code, environment, the tree that was submitted."""
