"""Mixers: layers of a user's own in the place of attention, in any backbone."""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Annotated, Any, NoReturn

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ablate.grid.errors import AblateError, SpecError
from ablate.grid.spec import Choice, OneOf
from ablate.variants.axes import Hidden
from ablate.variants.model.cache import Cache
from ablate.variants.model.parameters import NumberParameters
from ablate.variants.operator import Operator, head_shape


class Mixer(Choice):
    """A layer in the place of attention: a module of your own from x [batch, tokens, width] to the same shape.

    A class has a `kind` and `build`, and stands where an operator stands. It is a closed spec: its fields are part of
    the key. In a causal model the output at a token depends on no later one, which plans try on random input.
    """

    def build(self, width: int, heads: int, layer: int, layers: int) -> nn.Module:
        """Build the module of layer `layer` of `layers`, counted from 0 at the bottom.

        Its weights start as it draws them from PyTorch's global generator, which is seeded by the trial and the layer.
        """
        raise NotImplementedError

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        require_build(cls, Mixer.build, ("width", "heads", "layer", "layers"))
        super().__pydantic_init_subclass__(**kwargs)


OperatorOrMixer = Annotated[Operator | Mixer, OneOf(Operator, Mixer)]
"""Type of a field that holds either."""
Layers = tuple[Operator | Mixer, ...]
"""The operator or mixer of each layer, bottom first."""


class MixerLayer(nn.Module):
    """The module of a mixer, called as `Attention` is."""

    heads = 0
    """It takes no bias of positions."""

    def __init__(self, mixer: Mixer, *, width: int, heads: int, layer: int, layers: int) -> None:
        super().__init__()
        self.operator = mixer
        self.module = build_module(mixer, mixer.build, width=width, heads=heads, layer=layer, layers=layers)
        none = head_shape(Operator(), heads=1, query=1, value=1, width=width)
        self.numbers = NumberParameters(Operator(), none, {}, layer)
        """Empty."""

    def forward(
        self,
        x: Hidden,
        mask: Bool[Tensor, "*#heads #tokens #keys"] | None = None,
        bias: Float[Tensor, "*#heads tokens keys"] | None = None,
        cache: Cache | None = None,
    ) -> Hidden:
        """Compute the layer; SpecError for another shape. A model passes a mask that hides nothing."""
        del mask, bias, cache
        y = self.module(x)
        if not isinstance(y, Tensor) or y.shape != x.shape:
            got = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise SpecError(f"mixer {self.operator.label!r} maps {list(x.shape)} to {got}; return the same shape")
        return y

    def averages(self, x: Tensor, mask: Tensor | None = None) -> list[Tensor]:  # noqa: ARG002
        return []

    def path_name(self, length: int, dtype: torch.dtype | None = None, *, compiled: bool = False) -> str:  # noqa: ARG002
        return "mixer"


def refuse_mask(what: str) -> NoReturn:
    """Raise SpecError because a model without attention everywhere cannot hide keys."""
    raise SpecError(f"the task hides keys, such as padding, and {what} takes no mask; choose a task that hides none")


def require_build(cls: type[Choice], abstract: Callable[..., Any], arguments: Sequence[str]) -> None:
    """Raise SpecError unless a class with a kind has a method `build` of its own that takes these arguments."""
    if "kind" not in cls.model_fields:
        return
    build: Any = cls.build  # type: ignore[attr-defined]
    try:
        signature(build).bind(None, **dict.fromkeys(arguments))
        fits = build is not abstract
    except TypeError:
        fits = False
    if not fits:
        family = abstract.__qualname__.partition(".")[0]
        raise SpecError(
            f"{cls.__name__} has {'no build' if build is abstract else 'another build'}; write build(self, "
            f"{', '.join(arguments)}), which returns the module of the {family}"
        )


def build_module(spec: Choice, build: Callable[..., nn.Module], **arguments: Any) -> nn.Module:
    """Call the `build` of a user's class; SpecError if it raises, or returns no module."""
    where = f"{type(spec).__name__}.build"
    try:
        module = build(**arguments)
    except (AblateError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise SpecError(f"{where} raises {said}; every trial would fail there; correct it") from error
    if not isinstance(module, nn.Module):
        raise SpecError(f"{where} returns {type(module).__name__}; return a torch.nn.Module")
    return module
