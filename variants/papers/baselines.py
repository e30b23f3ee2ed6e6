"""The baseline of all comparisons."""

from variants.operator import Operator
from variants.papers.catalogue import named_operator


@named_operator("baseline")
def softmax() -> Operator:
    """Scaled dot-product attention."""
    return Operator(name="softmax")
