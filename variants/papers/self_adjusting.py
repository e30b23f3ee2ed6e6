"""Self-adjusting softmax (Zheng et al. 2025), a baseline of paper 003."""

from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.normalisers.self_adjusted import SelfAdjusted


@named_operator(
    "003",
    limits=(Limit("all logits 0", {}, softmax, where="logits of 0"),),
    traps=(
        "0 / 0, where all visible logits are 0, is 1 here; the paper leaves it open.",
        "The paper does not say whether gradients flow through the smallest and largest logit; here they do.",
        "A first token whose own logit is below 0 attends to nothing.",
    ),
)
def sa_softmax(*, normalised: bool = True, name: str = "SA-Softmax") -> Operator:
    """Softmax times a factor in 0..1 that grows with the logit; normalised=False is z softmax(z)."""
    return Operator(name=name, normaliser=SelfAdjusted(normalised=normalised))
