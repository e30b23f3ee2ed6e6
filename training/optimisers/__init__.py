"""Training as a spec: how long, at what rates, and by which optimiser."""

from ablate.training.optimisers.adamw import AdamW as AdamW, UncorrectedAdamW as UncorrectedAdamW
from ablate.training.optimisers.muon import Muon as Muon
from ablate.training.optimisers.optimiser import Optimiser as Optimiser, ParameterVectors as ParameterVectors
from ablate.training.optimisers.training_config import Training as Training
