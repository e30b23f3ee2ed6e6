"""Models without memory or random numbers, to count their parameters."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ablate.grid.errors import SpecError

T = TypeVar("T")


class _NothingDrawn(TorchFunctionMode):
    """Skips drawing normally distributed numbers: on a meta tensor it would load the compiler, which takes a second."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        keywords = dict(kwargs or {})
        if function in (Tensor.normal_, nn.init.normal_):
            return args[0] if args else keywords["tensor"]
        return function(*args, **keywords)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Build tensors with shapes but no values."""
    with torch.device("meta"), _NothingDrawn():
        yield


def build_shapes(make: Callable[[], T]) -> T:
    """Call `make` without memory, or with it if a user's code reads values while it builds a module."""
    try:
        with shapes_only():
            return make()
    except SpecError:
        return make()
