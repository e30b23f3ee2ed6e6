"""Interventions: replace tokens of text windows. Each is in the file named like its `kind`."""

from runners.tasks.text.interventions.fixed_token import FixedToken
from runners.tasks.text.interventions.intervention import Intervention
from runners.tasks.text.interventions.none import NoIntervention
from runners.tasks.text.interventions.random_tokens import RandomTokens

__all__ = ["FixedToken", "Intervention", "NoIntervention", "RandomTokens"]
