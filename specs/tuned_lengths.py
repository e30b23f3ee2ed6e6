"""Beyond the training length, each at its best rate and beside its controls: grammar and selective copy.

Models are trained on 32 tokens and evaluated on 32, 64 and 128; the planned comparison is at 128. Rotary positions are
the baseline's. The controls are a window of the training length, ALiBi, no positions, constant temperatures and what
else the changed stages ask for. The six seeds are new. Three rates were planned. On grammar the runs at these showed
the best of three settings at an end, so 0.001 and 0.02 were added there for all cells, before runs at these two.
"""

from principled_components import ACCURACY, gate, ground, margin, value
from screening import LAST, copy, sentences

from ablate import Grid, LearningCriterion, Measure, Operator, Trial, fox, over, softmax, ssa

operators = {
    "softmax": softmax(),
    "FoX from 0.99": fox(forget=0.99),
    "Principled from 0": Operator(margin=margin(), gate=gate(), normaliser=ground(), readout=value()),
    "SSA": ssa(),
}


def lengths(name: str, base: Trial, measure: Measure, rates: list[float], learned: LearningCriterion | None) -> Grid:
    """Compare operators at four times the training length of `base`."""
    return Grid(
        name=name,
        base=base,
        axes=[
            over("operator", list(operators.values()), labels=list(operators)),
            over("training.optimiser.lr", rates, name="rate", tune=True),
        ],
        seeds=range(400, 406),
        baseline={"operator": "softmax"},
        measure=measure,
        controls="auto",
        learned=learned,
    )


COPIED = LearningCriterion(name="accuracy", point={"length": 32}, limit=0.9, better="higher")
grammar_lengths = lengths(
    "grammar-lengths", sentences, LAST.changed(point={"length": 128}), [1e-3, 2e-3, 5e-3, 1e-2, 2e-2], None
)
copy_lengths = lengths("copy-lengths", copy, ACCURACY, [5e-4, 1e-3, 2e-3], COPIED)
