"""What is done to the windows of a text before a model reads them: one choice, one file, named like its `kind`."""

from runners.tasks.interventions.fixed_token import FixedToken
from runners.tasks.interventions.intervention import Intervention
from runners.tasks.interventions.none import NoIntervention
from runners.tasks.interventions.random_tokens import RandomTokens

__all__ = ["FixedToken", "Intervention", "NoIntervention", "RandomTokens"]
