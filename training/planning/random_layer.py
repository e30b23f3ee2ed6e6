"""A layer of attention on random input, in float64: what an operator does is seen before anything is trained."""

from functools import lru_cache
from typing import Final, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.variants.attend import Heads, attention, prepare
from ablate.variants.model.backbone import Backbone
from ablate.variants.model.parameters import NumberParameters
from ablate.variants.model.seeding import generator
from ablate.variants.operator import Operator, distances, head_shape
from ablate.variants.stages.positions import Positions

LOGIT_SD: Final = 0.5
"""Standard deviation of logits: between those of a fresh model, near 0, and those of the quickstart's models after 300
steps, 0.9 to 1.6."""


class LayerSize(NamedTuple):
    """Size of a layer, and what its model says about order."""

    heads: int
    """Before an operator joins some."""
    head_width: int
    length: int
    positions: Positions
    causal: bool

    def takes(self, operator: Operator) -> bool:
        """Return True if an operator has a meaning in it."""
        size = self._asdict()
        del size["length"]
        try:
            operator.check(kv_heads=self.heads, **size)
        except ValueError:
            return False
        return True


@lru_cache(maxsize=4096)
def smallest_layer(model: Backbone, operators: tuple[Operator, ...], length: int) -> LayerSize:
    """Return the size with the fewest heads of `model` that all `operators` take, two or more if it has them."""
    whole = LayerSize(model.heads, model.head_width, length + model.sink_tokens, model.positions, model.causal)
    sizes = (whole._replace(heads=heads) for heads in range(2, model.heads) if model.heads % heads == 0)
    return next((size for size in sizes if all(map(size.takes, operators))), whole)


@final
class RandomLayer:
    """Attention of an operator in layer `layer` of those that have it, of which `first` is the lowest.

    Keys, values and the layer's input are standard normal, queries `LOGIT_SD` times that, and the same for every
    operator. Numbers are at their start.
    """

    def __init__(self, operator: Operator, size: LayerSize, layer: int = 0, first: int = 0) -> None:
        self.operator, self.size, self._layer, self._first = operator, size, layer, first
        joined = operator.merge.heads_joined
        heads, channels, width = size.heads // joined, size.head_width * joined, size.heads * size.head_width
        self._q, self._k, self._v = (_in_heads(_normal(name, size.length, width), heads) for name in "qkv")
        if added := operator.added_channels:
            own_q, own_k = (_in_heads(_normal(f"gate {name}", size.length, heads * added), heads) for name in "qk")
            self._q, self._k = torch.cat((self._q, own_q), -1), torch.cat((self._k, own_k), -1)
        self._q = LOGIT_SD * self._q
        self._x = _normal("x", size.length, width)
        shape = head_shape(operator, heads=heads, query=channels + added, value=channels, width=width)
        self.numbers = NumberParameters(operator, shape, {}, layer)
        self.numbers.draw(0, str(first))
        self.numbers.double()

    def parameters(self, name: str) -> list[Tensor]:
        """Return what is trained of the number "stage.field": its table, its projection, or both."""
        numbers, place = self.numbers, name.replace(".", "_")
        views = ((numbers.table, numbers.raw_table), (numbers.projection, numbers.raw_projection))
        return [view(name).data for kind, view in views if place in kind]

    def randomise(self) -> None:
        """Draw all that is trained at random, by the name of its number, the same in layers that share it."""
        for name, number in self.operator.numbers().items():
            layer = self._layer if "layer" in number.per else self._first
            for tensor in self.parameters(name):
                shape = tensor.shape
                spread = shape[1] ** -0.5 if len(shape) == 2 else 0.5  # a projection keeps the size of its input
                drawn = torch.empty(shape, dtype=torch.float64)
                tensor.copy_(drawn.normal_(0, spread, generator=generator(0, name, layer, len(shape))))

    @torch.no_grad()
    def output(self) -> Float[Tensor, "tokens width"]:
        """Return the heads' outputs [T, width]; ValueError if one is not finite."""
        size, numbers = self.size, self.numbers.values(self._q, self._x)
        q, k = prepare(self.operator, self._q, self._k, size.positions, numbers)
        mask = None if size.causal else torch.ones(size.length, size.length, dtype=torch.bool)
        heads = Heads(q, k, self._v, mask, self._bias(q.shape[1]))
        output = attention(self.operator, heads, numbers).output[0].transpose(0, 1).flatten(1)
        if not output.isfinite().all():
            raise ValueError("its output on standard normal queries, keys and values is not finite")
        return output

    def _bias(self, heads: int) -> Tensor | None:
        positions, length = self.size.positions, self.size.length
        if not positions.adds_bias:
            return None
        table = _normal("bias", positions.buckets, heads)[0] if positions.buckets else None
        return positions.bias(distances(length, length), heads, table, causal=self.size.causal)


@lru_cache(maxsize=64)
def _normal(name: str, length: int, width: int) -> Float[Tensor, "1 length width"]:
    return torch.empty(1, length, width, dtype=torch.float64).normal_(generator=generator(0, name))


def _in_heads(x: Float[Tensor, "1 tokens width"], heads: int) -> Float[Tensor, "1 heads tokens channels"]:
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)
