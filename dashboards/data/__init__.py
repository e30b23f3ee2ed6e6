"""Frames and words that figures and pages share."""
