"""Where the sink is when some tokens mean nothing: random and fixed tokens in every window (paper 004, section 5)."""

from ablate import (
    FixedToken,
    Grid,
    Measure,
    NoIntervention,
    Probing,
    RandomTokens,
    SinkShare,
    Text,
    Training,
    Trial,
    llama2,
    over,
    softmax,
)

grid = Grid(
    name="sinks",
    base=Trial(
        task=Text(context=64, batch=32),
        model=llama2(layers=4, heads=4, width=128, feedforward_width=344),
        operator=softmax(),
        training=Training(steps=2000),
        probing=Probing(probes=(SinkShare(positions=(1, 2, 3, 4)),), sequences=100),
    ),
    axes=[
        over(
            "task.intervention",
            [
                NoIntervention(),
                *(RandomTokens(positions=positions) for positions in ((1,), (1, 2), (2,))),
                *(FixedToken(position=position) for position in (1, 2, 3)),
            ],
            labels=["none", "random 1", "random 1 2", "random 2", "fixed 1", "fixed 2", "fixed 3"],
        )
    ],
    seeds=range(5),
    baseline={"intervention": NoIntervention()},
    measure=Measure(name="bits_per_byte", scale="linear", rope=0.01, unit="bits per byte"),
)
