"""Training as a spec: how long, at what rates, and by which optimiser."""

from ablate.runners.optimisers.adamw import AdamW as AdamW, UncorrectedAdamW as UncorrectedAdamW
from ablate.runners.optimisers.muon import Muon as Muon
from ablate.runners.optimisers.optimiser import Optimiser as Optimiser, ParameterVectors as ParameterVectors
from ablate.runners.optimisers.training_config import Training as Training
