"""The maths: attention operators as points of one space, and the host Transformer they run in.

An operator is `logits -> score -> normaliser -> readout`, each stage a choice with numbers; see `variants.operator`.
Every module below this package is imported here, so every choice defined in it is known by its `kind`.
"""

from importlib import import_module
from pkgutil import walk_packages

from variants.attend import Attended, attend
from variants.backbone import Backbone, gpt2, llama2
from variants.gates.none import NoGate
from variants.gates.suppress import Suppress
from variants.margins.log_count import LogCount
from variants.margins.none import NoMargin
from variants.normalisers.ground import Ground
from variants.normalisers.total import Total
from variants.number import Number, Vector, granularities
from variants.operator import Operator, causal
from variants.papers.baselines import softmax
from variants.papers.integral import integral
from variants.papers.principled import principled
from variants.papers.ssa import ssa
from variants.placement import Placement
from variants.positions.learned import Learned
from variants.positions.none import NoPositions
from variants.positions.rotary import Rotary
from variants.readouts.ground_value import GroundValue
from variants.readouts.values import Values
from variants.scored import Scores
from variants.scores.exponential import Exponential
from variants.scores.ssa import SSA
from variants.signals import Signals
from variants.stage import Stage, Tends
from variants.stages import (
    Extra,
    Forgetting,
    Gate,
    HeadNorm,
    LogScore,
    Margin,
    Merge,
    Normaliser,
    OutputGate,
    PlainScore,
    Preparation,
    Product,
    Readout,
    Rescale,
    Score,
    Transform,
    Visible,
    Weights,
)
from variants.transformer import Scalars, Tokens, Transformer

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)

__all__ = [
    "SSA",
    "Attended",
    "Backbone",
    "Exponential",
    "Extra",
    "Forgetting",
    "Gate",
    "Ground",
    "GroundValue",
    "HeadNorm",
    "Learned",
    "LogCount",
    "LogScore",
    "Margin",
    "Merge",
    "NoGate",
    "NoMargin",
    "NoPositions",
    "Normaliser",
    "Number",
    "Operator",
    "OutputGate",
    "Placement",
    "PlainScore",
    "Preparation",
    "Product",
    "Readout",
    "Rescale",
    "Rotary",
    "Scalars",
    "Score",
    "Scores",
    "Signals",
    "Stage",
    "Suppress",
    "Tends",
    "Tokens",
    "Total",
    "Transform",
    "Transformer",
    "Values",
    "Vector",
    "Visible",
    "Weights",
    "attend",
    "causal",
    "gpt2",
    "granularities",
    "integral",
    "llama2",
    "principled",
    "softmax",
    "ssa",
]
