"""Keys and values of earlier tokens, kept so that a token is computed once while a sequence grows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Protocol, final, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.variants.axes import HeadValues, Keys


class NoCache(SpecError):
    """A model needs more than kept keys and values to compute the next token."""


@runtime_checkable
class Cache(Protocol):
    """Keeps what later queries need of earlier tokens, in one layer."""

    @property
    def length(self) -> int:
        """Number of tokens that are kept."""

    def count_keys(self, new: int) -> int:
        """Return the number of keys that the queries of `new` tokens will have."""

    def extend(
        self,
        k: Float[Tensor, "batch heads tokens channels"],
        v: Float[Tensor, "batch heads tokens values"],
        by_key: Mapping[str, Tensor],
    ) -> tuple[Keys, HeadValues, Mapping[str, Tensor]]:
        """Keep prepared keys, values and numbers by key [..., T, C] of new tokens; return those of all tokens."""

    def swap(
        self, name: str, last: Float[Tensor, "batch heads 1 channels"]
    ) -> Float[Tensor, "batch heads 1 channels"] | None:
        """Keep the last token [..., 1, C] of `name` and return the one kept before; None if there is none."""

    def attempt(self) -> AbstractContextManager[object]:
        """Put back what was kept before if the block raises."""


def attempt(cache: "Cache | ModelCache | None") -> AbstractContextManager[object]:
    """Return `cache.attempt()`, also of no cache."""
    return nullcontext() if cache is None else cache.attempt()


@final
class KeyCache(Cache):
    """The cache of a layer, in tensors that grow."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    @property
    def length(self) -> int:
        return self._tensors["v"].shape[-2] if "v" in self._tensors else 0

    def count_keys(self, new: int) -> int:
        return self.length + new

    def extend(
        self,
        k: Float[Tensor, "batch heads tokens channels"],
        v: Float[Tensor, "batch heads tokens values"],
        by_key: Mapping[str, Tensor],
    ) -> tuple[Keys, HeadValues, Mapping[str, Tensor]]:
        for name, new in (("k", k), ("v", v), *by_key.items()):
            old = self._tensors.get(name)
            if old is not None and (old.shape[:-2], old.shape[-1]) != (new.shape[:-2], new.shape[-1]):
                raise SpecError(
                    f"the cache keeps {name} {[*old.shape]}, and new tokens have {[*new.shape]}; every layer and every "
                    "batch of sequences begins a cache of its own"
                )
            self._tensors[name] = new if old is None else torch.cat((old, new), -2)
        return self._tensors["k"], self._tensors["v"], {name: self._tensors[name] for name in by_key}

    def swap(
        self, name: str, last: Float[Tensor, "batch heads 1 channels"]
    ) -> Float[Tensor, "batch heads 1 channels"] | None:
        before = self._tensors.get(f"last {name}")
        self._tensors[f"last {name}"] = last
        return before

    @contextmanager
    def attempt(self) -> Iterator[None]:
        before = dict(self._tensors)  # tensors are never changed in place
        try:
            yield
        except BaseException:
            self._tensors = before
            raise

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep these sequences of the batch alone."""
        self._tensors = {name: each[rows] for name, each in self._tensors.items()}


@final
class ModelCache:
    """The caches of a model's layers, bottom first."""

    def __init__(self, layers: int, sink_tokens: int = 0) -> None:
        self.layers, self._sink_tokens = [KeyCache() for _ in range(layers)], sink_tokens

    @property
    def length(self) -> int:
        """Number of tokens of the sequences so far."""
        return max(self.layers[0].length - self._sink_tokens, 0)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Put back what was kept before if the block raises."""
        with ExitStack() as stack:
            for each in self.layers:
                stack.enter_context(each.attempt())
            yield

    def select(self, rows: Sequence[int]) -> None:
        """Keep these sequences of the batch alone."""
        for each in self.layers:
            each.select(torch.tensor(rows))
