"""What everything is compared with."""

from variants.operator import Operator
from variants.papers.named import named


@named("baseline")
def softmax() -> Operator:
    """Scaled dot-product attention."""
    return Operator(name="softmax")
