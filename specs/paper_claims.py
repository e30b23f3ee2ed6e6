"""Principled Attention (paper 001) on its own claims: a task for each problem that it names.

    missing-key      a key that is asked for may have no pair, and the answer is "none": a ground state, or sinks?
    flagged-match    each key has two matches, and a flag forbids one: does the gate suppress it?

All numbers start at 0, the paper's reference value, and "all" is the whole of Principled Attention. Controls are those
that each cell asks for. A pilot of softmax, seed 900, chose task sizes, steps and rates: it learns the task at the
training length, and has room on both sides at the planned one. The seeds of the grids chose nothing.
"""

from claims_tasks import FlaggedRecall, GroundAtQueries, RecallOrNone
from principled_components import gate, ground, margin, value

from ablate import (
    AdamW,
    AskedLengths,
    Cosine,
    Grid,
    LearnedNumbers,
    LearningCriterion,
    Measure,
    Operator,
    Probing,
    SinkShare,
    Training,
    Trial,
    Values,
    learned_sink,
    llama2,
    over,
    softmax,
)

EVERYTHING = Operator(margin=margin(), gate=gate(), normaliser=ground(), readout=value())
MODEL = llama2(layers=2, heads=2, width=64, feedforward_width=64)
SIZES = {"batch": 32, "context": 32}


def claim(
    name: str, base: Trial, operators: dict[str, Operator], point: dict[str, float], learned: dict[str, float]
) -> Grid:
    """Compare operators with softmax by the accuracy at `point`; a run has learned with 90 % at `learned`."""
    return Grid(
        name=name,
        base=base,
        axes=[over("operator", [softmax(), *operators.values()], labels=["softmax", *operators])],
        seeds=range(500, 506),
        baseline={"operator": "softmax"},
        measure=Measure(name="accuracy", point=point, scale="linear", better="higher", rope=0.05, unit="share of 1"),
        controls="auto",
        learned=LearningCriterion(name="accuracy", point=learned, limit=0.9, better="higher"),
    )


def train(steps: int, lr: float) -> Training:
    return Training(steps=steps, optimiser=AdamW(lr=lr), schedule=Cosine(warmup=100), clip=1.0)


missing_key = claim(
    "missing-key",
    Trial(
        task=RecallOrNone(
            **SIZES, keys=16, values=16, filler=16, absent=0.25,
            evaluation=AskedLengths(lengths=(32, 64, 128), sequences=256),
        ),
        model=MODEL,
        operator=softmax(),
        training=train(1500, 1e-3),
        probing=Probing(probes=(LearnedNumbers(), SinkShare(), GroundAtQueries()), sequences=64),
    ),
    {
        "threshold": Operator(normaliser=ground(), readout=Values()),
        "threshold, v0": Operator(normaliser=ground(), readout=value()),
        "sink": learned_sink(),
        "all": EVERYTHING,
    },
    {"length": 128, "absent": 0.5},
    {"length": 32, "absent": 0.5},
)  # fmt: skip
flagged_match = claim(
    "flagged-match",
    Trial(
        task=FlaggedRecall(
            **SIZES, keys=16, values=16, filler=16, evaluation=AskedLengths(lengths=(32, 64, 128), sequences=256)
        ),
        model=MODEL,
        operator=softmax(),
        training=train(1000, 2e-3),
        probing=Probing(probes=(LearnedNumbers(),)),
    ),
    {"gate": Operator(gate=gate()), "all": EVERYTHING},
    {"length": 128},
    {"length": 32},
)
