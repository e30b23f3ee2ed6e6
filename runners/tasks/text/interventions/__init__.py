"""What is done to the windows of a text before a model reads them: one choice, one file, named like its `kind`."""

from runners.tasks.text.interventions.fixed_token import FixedToken
from runners.tasks.text.interventions.intervention import Intervention
from runners.tasks.text.interventions.none import NoIntervention
from runners.tasks.text.interventions.random_tokens import RandomTokens

__all__ = ["FixedToken", "Intervention", "NoIntervention", "RandomTokens"]
