"""The quickstart's operators as byte-level language models on real text: the documentation inside Python itself."""

from ablate import Grid, Measure, Text, Training, Trial, integral, llama2, over, principled, softmax, ssa

grid = Grid(
    name="text",
    base=Trial(
        task=Text(context=128, batch=16),
        model=llama2(layers=4, heads=4, width=128, feedforward_width=344),
        operator=softmax(),
        training=Training(steps=2000),
    ),
    axes=[
        over(
            "operator",
            [
                softmax(),
                ssa(),
                integral(signals=4),
                principled("head", gate_width=8, gate_dims="split", name="Principled per head"),
                principled("query", gate_width=8, gate_dims="split", name="Principled per query"),
            ],
        )
    ],
    seeds=range(5),
    baseline={"operator": "softmax"},
    measure=Measure(name="validation_loss", scale="linear", rope=0.005, unit="nats per byte"),
)
