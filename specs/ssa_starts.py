"""Is SSA worse than softmax, or later? Both starts of the read-in, trained for 1,000 and for 5,000 steps.

The table of paper 003 that was published here ranks how fast the scores learn: after 1,000 steps, 18 of 100 SSA models
had not learned the task, and 1 of 100 softmax models. Its order depends on how the read-in of scalars starts, too. Here
each cell says which share of its runs has learned, by the error in distribution that parted late runs there (0.2), and
the error of those that have. Twelve seeds describe shares; they would show 18 % against 1 % with a power of 4 %. Longer
training has a longer warm-up, a twelfth of its steps, as before. The seeds chose nothing.
"""

from ablate import Grid, LearningCriterion, over
from ablate.papers.grids.ssa import confirmation

_published = confirmation("cpu")
_training = _published.base.training
_longer = _training.changed(steps=5000, schedule=_training.schedule.changed(warmup=5000 // 12))
grid = Grid(
    name="ssa-starts",
    base=_published.base.changed(
        task=_published.base.task.changed(
            evaluation=_published.base.task.evaluation.changed(sigma_x=(1.0,), sigma_f=(1.0, 3.0, 10.0))
        ),
        evaluations=(),
    ),
    axes=[
        *_published.axes,
        over("model.initialisation", ["gpt2_scalars", "gpt2"], name="start", labels=["released", "GPT-2"]),
        over("training", [_training, _longer], name="steps", labels=["1,000", "5,000"]),
    ],
    seeds=range(600, 612),
    baseline={"operator": "softmax"},
    measure=_published.measure,
    learned=LearningCriterion(name="mse", point={"sigma_x": 1, "sigma_f": 1}, limit=0.2),
)
