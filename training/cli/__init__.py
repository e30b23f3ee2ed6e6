"""Commands about tasks, operators and trained models."""
