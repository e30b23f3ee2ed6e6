"""Parameters of an operator's numbers: tables along their axes, and a projection if they vary by query or token.

A parameter has one dimension, unless it is under weight decay: then the usual rule "decay what has two dimensions or
more" is right for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ablate.variants.attend import without_autocast
from ablate.variants.axes import Hidden
from ablate.variants.model.seeding import generator
from ablate.variants.number import HeadShape, Matrix, Number, RunningMean, Vector, noise
from ablate.variants.operator import Operator


class NumberParameters(nn.Module):
    """The numbers of one layer's operator. `shared` holds what several layers have in common, by number name."""

    def __init__(self, operator: Operator, shape: HeadShape, shared: dict[str, nn.Parameter], layer: int) -> None:
        super().__init__()
        self.numbers, self.layer = operator.numbers(), layer
        self._heads = {name: operator.heads_of(name, shape.heads) for name in self.numbers}
        self._several = shape.heads > 1
        self._borrowed, self._shapes = set[str](), dict[str, torch.Size]()
        self._means = {name: number for name, number in self.numbers.items() if isinstance(number, RunningMean)}
        self.moving = True
        """True if running means move at every forward pass in training; else only `move` moves them."""
        self.table = nn.ParameterDict()
        self.projection = nn.ParameterDict()
        for name, number in self.numbers.items():
            own_shape = operator.own_shape(name, shape)
            if not number.trained:
                running = isinstance(number, RunningMean)  # part of the state of a run; a constant is not
                self.register_buffer(_attribute(name), number.fixed_value(own_shape, layer), persistent=running)
                continue
            raw = number.table(own_shape, layer)
            self._shapes[f"table.{_attribute(name)}"] = raw.shape
            table = nn.Parameter(raw if isinstance(number, Matrix) else raw.flatten())
            if "layer" not in number.per:
                own, table = table, shared.setdefault(f"{operator.key} {name}", table)
                if table is not own:
                    self._borrowed.add(name)
            if number.bias:
                self.table[_attribute(name)] = table
            else:
                self.register_buffer(_attribute(name), table.detach(), persistent=False)
            if "query" in number.per:
                self._shapes[f"projection.{_attribute(name)}"] = torch.Size((own_shape.heads, shape.query))
                self.projection[_attribute(name)] = nn.Parameter(torch.zeros(own_shape.heads * shape.query))
            elif "token" in number.per:
                outputs = own_shape.heads * number.entries(shape)[1]
                self.projection[_attribute(name)] = nn.Parameter(torch.zeros(outputs, shape.width))

    def raw_table(self, name: str) -> Float[Tensor, "1 heads rows columns"]:
        """Return what is trained of a number, before its link."""
        place = _attribute(name)
        raw: Tensor = self.table[place] if self.numbers[name].bias else self.get_buffer(place)
        return raw.view(self._shapes[f"table.{place}"])

    def raw_projection(self, name: str) -> Float[Tensor, "outputs inputs"]:
        """Return what predicts a number, [heads, channels] from queries or [heads times columns, width] from tokens."""
        place = _attribute(name)
        projection: Tensor = self.projection[place]
        return projection.view(self._shapes.get(f"projection.{place}", projection.shape))

    @torch.no_grad()
    def draw(self, seed: int | None = None, path: str = "") -> None:
        """Draw the random part of the numbers' start, from PyTorch's global generator if there is no seed.

        The lowest layer draws what several layers share.
        """
        for name, number in self.numbers.items():
            if number.trained and number.random and name not in self._borrowed:
                number.disturb(self.raw_table(name), _generator(seed, path, name))
            if number.projection_std:
                projection = self.raw_projection(name)
                projection.add_(noise(projection, number.projection_std, _generator(seed, path, name, "u")))

    def values(
        self,
        query: Float[Tensor, "batch heads tokens channels"],
        x: Hidden,
        present: Bool[Tensor, "*#heads tokens 1"] | None = None,
    ) -> dict[str, Float[Tensor, "#batch heads_of_number rows columns"]]:
        """Return the value of every number, ready to broadcast.

        `query` is unrotated and unscaled; `x` is the layer's normalised input. Running means move in training, by the
        tokens that are `present`, None for all.
        """
        values = {name: self._value(name, number, query, x) for name, number in self.numbers.items()}
        if self.training and self.moving and not _in_backward():
            averaged = {name: values[_mean_of(name, number)] for name, number in self._means.items()}
            self.move([self._average(name, value, present) for name, value in averaged.items()])
        for name in self._means:
            values[name] = self.get_buffer(_attribute(name)).clone()  # the next step changes it in place
        return values

    @property
    def borrowed(self) -> list[str]:
        """Names of parameters that belong to a lower layer."""
        return [f"table.{_attribute(name)}" for name in self._borrowed if self.numbers[name].bias]

    @property
    def averaging(self) -> bool:
        return bool(self._means)

    @torch.no_grad()
    def averages(
        self,
        query: Float[Tensor, "batch heads tokens channels"],
        x: Hidden,
        present: Bool[Tensor, "*#heads tokens 1"] | None = None,
    ) -> list[Float[Tensor, "1 heads 1 1"]]:
        """Compute the batch mean that each running mean takes in; arguments as for `values`."""
        averaged = [(name, _mean_of(name, number)) for name, number in self._means.items()]
        return [self._average(name, self._value(of, self.numbers[of], query, x), present) for name, of in averaged]

    @torch.no_grad()
    def move(self, averages: Sequence[Float[Tensor, "1 heads 1 1"]]) -> None:
        """Move every running mean by the mean of one batch, in the order of `averages`."""
        for (name, number), average in zip(self._means.items(), averages, strict=True):
            mean = self.get_buffer(_attribute(name))
            moved = _moved_mean if torch.compiler.is_compiling() else _move
            mean.copy_(moved(mean, average, number.momentum))

    def _value(
        self, name: str, number: Number, query: Float[Tensor, "batch heads tokens channels"], x: Hidden
    ) -> Float[Tensor, "#batch heads_of_number rows columns"]:
        attribute = _attribute(name)
        if not number.trained:
            return self.get_buffer(attribute)
        raw = self.raw_table(name)
        with without_autocast(raw.device.type):  # contiguous: PyTorch tells other strides of softplus's gradient wrong
            if "query" in number.per:
                own = query[:, self._heads[name]].to(raw.dtype)
                raw = raw + torch.einsum("bhtd,hd->bht", own, self.raw_projection(name))[..., None].contiguous()
            elif "token" in number.per:
                predicted = nn.functional.linear(x.to(raw.dtype), self.projection[attribute])
                raw = raw + predicted.view(*x.shape[:2], -1, raw.shape[-1]).transpose(1, 2).contiguous()
        return number.value(raw, self.layer)

    def _average(
        self,
        name: str,
        averaged: Float[Tensor, "#batch #heads #tokens 1"],
        present: Bool[Tensor, "*#heads tokens 1"] | None,
    ) -> Float[Tensor, "1 heads 1 1"]:
        """Average over sequences and tokens without padding."""
        mean = self.get_buffer(_attribute(name))
        averaged = averaged.detach().to(mean.dtype)
        if present is None:
            return averaged.mean((0, 2), keepdim=True).expand_as(mean)
        there = torch.ones_like(averaged) * present
        count = there.sum((0, 2), keepdim=True).clamp(min=1)
        return ((averaged * there).sum((0, 2), keepdim=True) / count).expand_as(mean)

    def weights(self) -> Iterator[nn.Parameter]:
        """Yield parameters under weight decay: a kernel's matrix and projections from the layer's input."""
        for name, number in self.numbers.items():
            attribute = _attribute(name)
            if isinstance(number, Matrix):
                yield self.table[attribute]
            elif "token" in number.per:
                yield self.projection[attribute]

    def learned_values(self) -> Iterator[tuple[int | None, str, float]]:
        """Yield (head or None, name, value or norm) of trained numbers, at a zero query or token, and running means."""
        for name, number in self.numbers.items():
            if number.trained and number.bias:
                values = number.value(self.raw_table(name).detach(), self.layer)
            elif isinstance(number, RunningMean):
                values = self.get_buffer(_attribute(name))
            else:
                continue
            whole = isinstance(number, Vector | Matrix)
            per_head = (values.flatten(2).norm(dim=-1) if whole else values).flatten().tolist()
            apart = self._several and ("head" in number.per or isinstance(number, RunningMean))
            for head, value in enumerate(per_head, start=self._heads[name].start):
                yield (head if apart else None), name, value

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """Load weights that were saved when every table had four dimensions, too."""
        for name, own in self.named_parameters():
            saved = state_dict.get(prefix + name)
            if isinstance(saved, Tensor) and saved.numel() == own.numel():
                state_dict[prefix + name] = saved.reshape(own.shape)  # type: ignore[index]
        super()._load_from_state_dict(state_dict, prefix, *args)


def undecayed_parameters(module: nn.Module) -> list[nn.Parameter]:
    """List the parameters of operators' numbers in `module` that are without weight decay, each once.

    Matrices and projections from the layer's input are the others.
    """
    tables = [each for each in module.modules() if isinstance(each, NumberParameters)]
    weights = {p for table in tables for p in table.weights()}
    numbers = dict.fromkeys(p for table in tables for p in table.parameters())
    return [p for p in numbers if p not in weights]


def _in_backward() -> bool:
    """Return True if the backward pass computes a checkpointed layer once more, for which no mean moves again."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def _move(mean: Tensor, average: Tensor, momentum: float) -> Tensor:
    return mean.mul(momentum).add_(average, alpha=1 - momentum)


_moved_mean = torch.library.custom_op("ablate::moved_mean", _move, mutates_args=())
"""`_move` as one operation: a compiler computes others once more in the backward pass, there from a mean that moved."""
_moved_mean.register_fake(lambda mean, *_: torch.empty_like(mean))


def _generator(seed: int | None, *path: object) -> torch.Generator | None:
    return None if seed is None else generator(seed, *path)


def _mean_of(name: str, number: RunningMean) -> str:
    return f"{name.rpartition('.')[0]}.{number.of}"


def _attribute(name: str) -> str:
    return name.replace(".", "_")
