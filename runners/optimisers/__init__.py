"""Training as a spec: how long, at what rates, and by which optimiser."""

from runners.optimisers.adamw import AdamW as AdamW, UncorrectedAdamW as UncorrectedAdamW
from runners.optimisers.muon import Muon as Muon
from runners.optimisers.optimiser import Optimiser as Optimiser, ParameterVectors as ParameterVectors
from runners.optimisers.training_config import Training as Training
