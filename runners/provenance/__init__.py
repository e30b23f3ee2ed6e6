"""Provenance of a result: code, environment and submitted snapshot."""
