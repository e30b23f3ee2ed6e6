"""Looks inside a model at each evaluation: one probe, one file."""

from runners.probes.learned_numbers import Probed, learned_numbers

__all__ = ["Probed", "learned_numbers"]
