"""Does attention dilute as keys grow in number, and does margin amplification prevent it? (paper 001, third problem)

Models are trained on 4 pairs in 32 tokens and tested with 16 pairs in 128 and more, up to 1,024 tokens. The planned
comparison is at 256. Positions are T5's, since rotations beyond the training length would be new to the model. The
simplest explanation is a constant temperature: the margin multiplies logits by 1 + softplus(alpha) ln K. Temperatures
and other controls are those that the cells ask for; "all" is the whole of Principled Attention.

A pilot of softmax and SSMax, seed 900, chose sizes, steps and rate. Softmax learns 4 pairs and answers 72 % of 16. With
filler in place of further pairs nothing was diluted: it answered all of 4 pairs in 1,024 tokens. The seeds here chose
nothing.
"""

from claims_tasks import GrowingRecall
from paper_claims import EVERYTHING, MODEL, SIZES, claim, train
from principled_components import margin

from ablate import T5, AskedLengths, LearnedNumbers, Operator, Probing, Trial, softmax, ssmax

grid = claim(
    "dilution",
    Trial(
        task=GrowingRecall(
            **SIZES,
            keys=16,
            values=16,
            filler=16,
            evaluation=AskedLengths(lengths=(32, 64, 128, 256, 512, 1024), sequences=64),
        ),
        model=MODEL.changed(positions=T5()),
        operator=softmax(),
        training=train(1500, 2e-3),
        probing=Probing(probes=(LearnedNumbers(),)),
    ),
    {"margin": Operator(margin=margin()), "SSMax": ssmax(), "all": EVERYTHING},
    {"length": 256},
    {"length": 32},
)
