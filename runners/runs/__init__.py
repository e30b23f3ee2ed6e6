"""Runs on this machine: what is missing is trained, and lands in the store while it does."""
