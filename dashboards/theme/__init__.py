"""Colours, dashes and markers."""
