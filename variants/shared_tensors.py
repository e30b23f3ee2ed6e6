"""Tensors that depend on sizes alone, made once."""

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


class shared_tensor(Generic[P, R]):  # noqa: N801  (a decorator)
    """Keep the last 32 results of a function of hashable arguments. Callers do not write into them.

    The first caller may be an evaluation in inference mode and the next one trains. A transform of `torch.func` gets
    tensors of its own, since they do not outlive it.
    """

    def __init__(self, make: Callable[P, R]) -> None:
        kept: Any = lru_cache(maxsize=32)(make)
        self._make, self._kept, self.cache_clear = make, kept, kept.cache_clear
        update_wrapper(self, make)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return self._make(*args, **kwargs)
        with torch.inference_mode(False):  # noqa: FBT003
            result: R = self._kept(*args, **kwargs)
        return result
