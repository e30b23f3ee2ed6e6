"""Synthetic tasks, drawn from a seed."""
