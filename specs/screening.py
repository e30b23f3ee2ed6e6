"""Screening of seven tasks: which tell attention variants apart at a size that two cores train in minutes.

Seven grids, one per task, with the same operators and seeds. Recall, induction, selective copy and the needle are
trained on 32 tokens and compared on 64 or 128. Grammar and text are compared by the loss at the end of windows of four
times the training length, functions on prompts as in training. A task deserves a larger grid if some variant differs
from softmax on it. An eighth grid asks why FoX stays at chance on induction: its
forget gate starts at 0.5, 0.9 or 0.99. A ninth repeats the start that was best with new seeds. A tenth
trains the needle longer, which no operator learns.
"""

from principled_components import ACCURACY, ERROR, functions, grammar, induction, margin

from ablate import (
    AdamW,
    AskedLengths,
    AssociativeRecall,
    Cosine,
    Grid,
    LengthExtrapolation,
    Measure,
    Needle,
    Operator,
    SelectiveCopy,
    Text,
    Training,
    Trial,
    fox,
    integral,
    learned_sink,
    linear_elu,
    llama2,
    over,
    softmax,
    ssa,
)

operators = {
    "softmax": softmax(),
    "Margin": Operator(margin=margin()),
    "SSA": ssa(),
    "Integral": integral(signals=4),
    "learned sink": learned_sink(),
    "FoX": fox(),
    "linear ELU": linear_elu(),
}
LENGTHS = AskedLengths(lengths=(32, 64, 128))
recall = induction.changed(
    task=AssociativeRecall(batch=32, context=32, pairs=4, keys=16, values=16, evaluation=LENGTHS)
)
copy = recall.changed(task=SelectiveCopy(batch=32, context=32, copied=4, contents=8, evaluation=LENGTHS))
needle = recall.changed(task=Needle(batch=32, context=32, keys=16, values=16, depths=(0.5,), evaluation=LENGTHS))
text = Trial(
    task=Text(context=64, batch=16),
    model=llama2(layers=2, heads=2, width=64, feedforward_width=128),
    operator=softmax(),
    training=Training(steps=600, optimiser=AdamW(lr=3e-3), schedule=Cosine(warmup=60), clip=1.0),
    evaluations=(LengthExtrapolation(lengths=(64, 128, 256), count=64),),
)
sentences = grammar.changed(  # learned positions end with the training length
    model=llama2(layers=2, heads=2, width=32, feedforward_width=64),
    evaluations=(LengthExtrapolation(lengths=(32, 64, 128), count=64, bucket=32, last=32),),
)
LAST = Measure(name="length_extrapolation_last_loss", scale="linear", rope=0.03, unit="nats per token")


def screening(
    name: str, base: Trial, measure: Measure, compared: dict[str, Operator] = operators, seeds: range = range(5)
) -> Grid:
    """Compare operators with softmax on the task of `base`."""
    return Grid(
        name=name,
        base=base,
        axes=[over("operator", list(compared.values()), labels=list(compared))],
        seeds=seeds,
        baseline={"operator": "softmax"},
        measure=measure,
    )


starts = {"softmax": softmax(), **{f"FoX from {f}": fox(forget=f) for f in (0.5, 0.9, 0.99)}}
best_start = {name: starts[name] for name in ("softmax", "FoX from 0.99")}

recall_screening = screening("recall-screening", recall, ACCURACY.changed(point={"length": 128, "pairs": 4}))
induction_screening = screening("induction-screening", induction, ACCURACY)
copy_screening = screening("copy-screening", copy, ACCURACY.changed(point={"length": 64}))
needle_screening = screening("needle-screening", needle, ACCURACY.changed(point={"length": 64, "depth": 0.5}))
grammar_screening = screening("grammar-screening", sentences, LAST.changed(point={"length": 128}))
text_screening = screening("text-screening", text, LAST.changed(point={"length": 256}))
functions_screening = screening("functions-screening", functions, ERROR)
start_screening = screening("start-screening", induction, ACCURACY, starts)
needle_longer = Grid(  # does it take more steps?
    name="needle-longer",
    base=needle.changed(training=induction.training.changed(steps=6000)),
    axes=[
        over("training.optimiser.lr", [1e-3, 3e-3]),
        over("operator", [softmax(), starts["FoX from 0.99"]], labels=["softmax", "FoX from 0.99"]),
    ],
    seeds=[0],
    measure=ACCURACY.changed(point={"length": 32, "depth": 0.5}),
)
start_confirmation = screening("start-confirmation", induction, ACCURACY, best_start, seeds=range(100, 110))
