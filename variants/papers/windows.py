"""Softmax over other keys than the causal ones (paper 004, section 6)."""

from variants.operator import Operator
from variants.papers.baselines import softmax
from variants.papers.catalogue import Limit, named_operator
from variants.stages.visible.prefix import Prefix
from variants.stages.visible.window import Window


@named_operator("004", limits=(Limit("as long as the sequence", {}, softmax, fields={"visible": {"size": 10**6}}),))
def sliding_window(size: int = 64, *, name: str = "sliding window") -> Operator:
    """Softmax over the last `size` keys, the query's own among them."""
    return Operator(name=name, visible=Window(size=size))


@named_operator("004", limits=(Limit("a prefix of one key", {}, softmax, fields={"visible": {"length": 1}}),))
def prefix_lm(length: int = 16, *, name: str = "prefix LM") -> Operator:
    """Softmax in which every query sees the first `length` keys; the loss belongs after them."""
    return Operator(name=name, visible=Prefix(length=length))
