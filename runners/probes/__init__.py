"""Looks inside a model at each evaluation: one probe, one file, named like its `kind`."""

from runners.probes.learned_numbers import LearnedNumbers
from runners.probes.probe import Artefact, Found, Probe, Probed, Probing, Seen

__all__ = ["Artefact", "Found", "LearnedNumbers", "Probe", "Probed", "Probing", "Seen"]
