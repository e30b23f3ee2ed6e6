"""Provenance of a result: code, environment, the submitted tree."""
