"""Processes that train: their state, failures, memory, and ranks that train together."""
