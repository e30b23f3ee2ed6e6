"""Attempts at trials: claimed by one process, alive by a heartbeat, durable by checkpoints, ended once."""
