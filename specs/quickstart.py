"""Attention on a grammar: what helps, what hurts, what is equivalent, and what five seeds leave undecided.

Verbs of the grammar agree with distant subjects, and names return within a window. Two cores need about two minutes.

- Own token only is a control that cannot look back.
- FoX forgets distant tokens.
- Integral averages the logits of four slices of a head. Without rotary positions this is softmax at half the scale,
  its control in paper 002.
- SSA scores a small logit s nearly as exp(n b s), which is softmax at another temperature. On Python's documentation
  it is equivalent to softmax, too (docs/results.md).
- Margin from 0 is the margin amplification of Principled Attention alone. Its alpha starts at 0, where it can move.
- Principled from 0 has all components, each with a number per head that starts at 0.
"""

from ablate import (
    AdamW,
    AttentionMaps,
    Cosine,
    Grammar,
    Grid,
    Ground,
    GroundValue,
    LogCount,
    Measure,
    Number,
    Operator,
    Suppress,
    Training,
    Trial,
    fox,
    gpt2,
    integral,
    over,
    sliding_window,
    softmax,
    ssa,
)

zero = Number(init=0.0).at("head")
operators = {
    "softmax": softmax(),
    "FoX": fox(),
    "own token only": sliding_window(size=1),
    "Integral": integral(signals=4),
    "SSA": ssa(),
    "Margin from 0": Operator(margin=LogCount(amplification=zero)),
    "Principled from 0": Operator(
        margin=LogCount(amplification=zero),
        gate=Suppress(width=8, strength=zero),
        normaliser=Ground(threshold=zero),
        readout=GroundValue(),
    ),
}

trial = Trial(
    task=Grammar(
        nouns=16, verbs=8, names=16, prepositions=4, topics=2, context=32, batch=32,
        validation_windows=128, agreement_pairs=16,
    ),
    model=gpt2(layers=2, heads=2, width=32, max_positions=32),
    operator=softmax(),
    training=Training(steps=300, optimiser=AdamW(lr=5e-3), schedule=Cosine(warmup=30), clip=1.0),
)  # fmt: skip
maps = AttentionMaps(sequences=1)  # for the page Attention

grid = Grid(
    name="quickstart",
    base=trial.changed(probing=trial.probing.changed(probes=(*trial.probing.probes, maps))),
    axes=[over("operator", list(operators.values()), labels=list(operators))],
    seeds=range(5),
    baseline={"operator": "softmax"},
    measure=Measure(name="loss", scale="linear", rope=0.03, unit="nats per token"),
)
