"""Attempts at trials: claims, heartbeats, checkpoints and end records."""
