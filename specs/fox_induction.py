"""Does the Forgetting Transformer's gain on induction stand beside its controls, at its best rate, trained longer?

specs/screening.py found that FoX whose gate starts at 0.99 is better than softmax at four times the training length, at
one learning rate and without controls. Here each cell has its own best rate. FoX is compared with the simplest
explanations of a gain beyond the training length, too, and both are trained twice as long. No result chose the ten
seeds. Three rates were planned. 0.004 was added after they had been trained, as the best one of FoX stood at the end of
their range.
"""

from principled_components import ACCURACY, induction

from ablate import Grid, LearningCriterion, fox, over, softmax

grid = Grid(
    name="fox-induction",
    base=induction,
    axes=[
        over("operator", [softmax(), fox(forget=0.99)], labels=["softmax", "FoX from 0.99"]),
        over("training.optimiser.lr", [5e-4, 1e-3, 2e-3, 4e-3], name="rate", tune=True),
    ],
    seeds=range(300, 310),
    baseline={"operator": "softmax"},
    measure=ACCURACY,
    controls="auto",
    longer=2,
    learned=LearningCriterion(name="accuracy", point={"length": 32}, limit=0.9, better="higher"),
)
