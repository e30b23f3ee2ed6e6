"""Principled Attention (paper 001), component by component, on three tasks that two cores train in half a minute.

The induction task is trained on 32 tokens and compared on 128: the paper's third claim is about length. Grammar is
language modelling with a known optimum; functions are regression in context. Each task has two grids. In
"components", gate, margin, threshold and ground value are on or off (8 seeds). In "granularity", one component at a
time has each granularity, beside its pitfalls and the answers of other papers to the same question (5 seeds).

All numbers start at 0, the paper's reference value. The neutral start of `principled()`, -5, is among the pitfalls:
softplus is so flat there that a short run cannot leave it.
"""

from ablate import (
    AdamW,
    AskedLengths,
    Cosine,
    Grammar,
    Grid,
    Ground,
    GroundValue,
    Induction,
    LearnedNumbers,
    LinearFunctions,
    LogCount,
    Measure,
    NoGate,
    NoMargin,
    Number,
    Operator,
    Probing,
    ShiftGrid,
    Suppress,
    Total,
    Training,
    Trial,
    Values,
    forbid,
    fox,
    gpt2,
    granularities,
    has,
    learned_sink,
    llama2,
    off_by_one,
    over,
    principled,
    qk_norm,
    softmax,
    ssmax,
)


def margin(per="head", start=0.0):
    return LogCount(amplification=Number(init=start).at(per))


def gate(per="head", start=0.0, dims="add"):
    return Suppress(width=8, dims=dims, strength=Number(init=start).at(per))


def ground(per="head", start=0.0):
    return Ground(threshold=Number(init=start).at(per))


def value(per="head"):
    return GroundValue(ground_value=GroundValue().ground_value.at(per))


induction = Trial(
    task=Induction(
        batch=32, context=32, symbols=32, evaluation=AskedLengths(lengths=(32, 64, 128, 256), sequences=256)
    ),
    model=llama2(layers=2, heads=2, width=64, feedforward_width=64),
    operator=softmax(),
    training=Training(steps=1500, optimiser=AdamW(lr=1e-3), schedule=Cosine(warmup=100), clip=1.0),
    probing=Probing(probes=(LearnedNumbers(),), sequences=8),
)
grammar = Trial(
    task=Grammar(
        nouns=16, verbs=8, names=16, prepositions=4, topics=2, context=32, batch=32,
        validation_windows=256, agreement_pairs=64,
    ),
    model=gpt2(layers=2, heads=2, width=32, max_positions=32),
    operator=softmax(),
    training=Training(steps=600, optimiser=AdamW(lr=5e-3), schedule=Cosine(warmup=60), clip=1.0),
    probing=Probing(probes=(LearnedNumbers(),), sequences=8),
)  # fmt: skip
functions = Trial(
    task=LinearFunctions(
        points=11,
        batch=32,
        evaluation=ShiftGrid(sigma_x=(1, 2), sigma_f=(1, 2, 3, 5), functions=100, sequences=8, points=11),
    ),
    model=gpt2(layers=2, heads=2, width=32, max_positions=32),
    operator=softmax(),
    training=Training(steps=1200, optimiser=AdamW(lr=1e-2, betas=(0.9, 0.99)), schedule=Cosine(warmup=100), clip=1.0),
    probing=Probing(probes=(LearnedNumbers(),), sequences=8),
)

ACCURACY = Measure(
    name="accuracy", point={"length": 128}, scale="linear", better="higher", rope=0.05, unit="share of 1"
)
LOSS = Measure(name="validation_loss", scale="linear", rope=0.03, unit="nats per token")
ERROR = Measure(name="mse", point={"sigma_x": 1, "sigma_f": 1}, scale="log", rope=0.1, unit="squared output units")


def components(name: str, base: Trial, measure: Measure) -> Grid:
    """Cross gate, margin and threshold, each absent or per head, and the ground value where there is a threshold."""
    return Grid(
        name=f"{name}-components",
        base=base,
        axes=[
            over("operator.gate", [NoGate(), gate()], labels=["no gate", "gate"]),
            over("operator.margin", [NoMargin(), margin()], labels=["no margin", "margin"]),
            over("operator.normaliser", [Total(), ground()], name="threshold", labels=["no threshold", "threshold"]),
            over("operator.readout", [Values(), value()], name="ground_value", labels=["v0 = 0", "v0"]),
        ],
        rules=[
            forbid(
                lambda trial: (
                    trial.operator.readout.kind == "ground_value" and not has("operator.normaliser.threshold")(trial)
                ),
                reason="only a threshold leaves weight to the ground value",
            )
        ],
        seeds=range(8),
        baseline={"gate": "no gate", "margin": "no margin", "threshold": "no threshold"},
        measure=measure,
    )


def granularity(name: str, base: Trial, measure: Measure) -> Grid:
    """Vary one component at a time: its granularity, its start, and answers of other papers."""
    threshold = Operator(normaliser=ground(), readout=Values())
    operators = {
        "softmax": softmax(),
        **{f"margin {per}": Operator(margin=margin(per)) for per in granularities},
        "margin head, start -5": Operator(margin=margin(start=-5.0)),
        **{f"gate {per}": Operator(gate=gate(per)) for per in granularities},
        "gate head, start -5": Operator(gate=gate(start=-5.0)),
        "gate head, split": Operator(gate=gate(dims="split")),
        **{f"threshold {per}": threshold.changed(normaliser=ground(per)) for per in granularities},
        "threshold constant, start -60": threshold.changed(normaliser=ground("constant", -60.0)),
        **{f"threshold head, v0 {per}": threshold.changed(readout=value(per)) for per in ("layer", "head")},
        "all query": principled("query", gate_width=8),
        "SSMax": ssmax(),
        "learned sink": learned_sink(),
        "off by one": off_by_one(),
        "QK norm": qk_norm(),
        "FoX": fox(),
    }
    return Grid(
        name=f"{name}-granularity",
        base=base,
        axes=[over("operator", list(operators.values()), labels=list(operators))],
        seeds=range(5),
        baseline={"operator": "softmax"},
        measure=measure,
    )


induction_components = components("induction", induction, ACCURACY)
grammar_components = components("grammar", grammar, LOSS)
functions_components = components("functions", functions, ERROR)
induction_granularity = granularity("induction", induction, ACCURACY)
grammar_granularity = granularity("grammar", grammar, LOSS)
functions_granularity = granularity("functions", functions, ERROR)
