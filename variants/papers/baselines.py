"""What everything is compared with."""

from variants.operator import Operator


def softmax() -> Operator:
    """Scaled dot-product attention."""
    return Operator(name="softmax")
