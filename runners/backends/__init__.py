"""Backends: schedulers that run the workers of submissions on other machines."""
