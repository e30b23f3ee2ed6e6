"""Foreign backbones: whole models of a user's own, from the operator of each layer and the task's inputs."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Annotated, Any, ClassVar, NoReturn

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from ablate.grid.errors import SpecError
from ablate.grid.spec import Choice, OneOf
from ablate.variants.axes import Inputs, Outputs, Visibility
from ablate.variants.model.attention import Attention
from ablate.variants.model.backbone import Backbone
from ablate.variants.model.block import Block
from ablate.variants.model.cache import ModelCache, NoCache
from ablate.variants.model.mixer import Layers, Mixer, MixerLayer, build_module, refuse_mask, require_build
from ablate.variants.model.parameters import NumberParameters, undecayed_parameters
from ablate.variants.model.seeding import use_seed
from ablate.variants.model.shapes import build_shapes
from ablate.variants.model.transformer import LayerTrace, Scalars, Tokens, Transformer
from ablate.variants.operator import Operator
from ablate.variants.paths.choose import PathName
from ablate.variants.stages.positions import NoPositions, Positions


class ForeignBackbone(Choice):
    """A whole model of your own, in the place of a `Backbone`; a class has a `kind`, `build`, and fields of its own.

    Tasks, the training loop, evaluations and verdicts are those of every trial. Probes of layers, knock-outs, execution
    paths and caches look into the layers of a `Backbone`, and leave it out.
    """

    positions: ClassVar[Positions] = NoPositions()
    sink_tokens: ClassVar[int] = 0

    layers: PositiveInt = 1
    """Number of layers that have an operator."""
    causal: bool = True
    """True if an output depends on no later input, which plans try on random input; False for an encoder."""

    def build(self, operators: Layers, inputs: Scalars | Tokens) -> nn.Module:
        """Build a module from inputs [B, T, ...] to outputs [B, T, out], with an operator or mixer for each layer.

        `make_layer` makes both into modules. Weights start as they are drawn from PyTorch's global generator, which the
        trial seeds.
        """
        raise NotImplementedError

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        require_build(cls, ForeignBackbone.build, ("operators", "inputs"))
        super().__pydantic_init_subclass__(**kwargs)


AnyBackbone = Annotated[Backbone | ForeignBackbone, OneOf(Backbone, ForeignBackbone)]
"""Type of a field that holds either."""


def make_layer(
    operator: Operator | Mixer, *, width: int, heads: int, layer: int, layers: int, **attention: Any
) -> Attention | MixerLayer:
    """Make the module of an operator or a mixer, from x [B, T, width] to [B, T, width]; for `ForeignBackbone.build`.

    `attention` are further arguments of `Attention`, which do not concern a mixer. Whatever it draws, the weights that
    are drawn after it stay the same.
    """
    with use_seed(int(torch.randint(2**62, (), device="cpu"))):
        if isinstance(operator, Mixer):
            return MixerLayer(operator, width=width, heads=heads, layer=layer, layers=layers)
        return Attention(operator, width=width, heads=heads, layer=layer, layers=layers, **attention)


class ForeignModel(nn.Module):
    """The model of a foreign backbone, called as a `Transformer` is."""

    def __init__(self, backbone: ForeignBackbone, operators: Layers, *, inputs: Scalars | Tokens, seed: int) -> None:
        super().__init__()
        self.backbone, self.inputs, self._operators = backbone, inputs, operators
        with use_seed(seed, "foreign"):
            self.module = build_module(backbone, backbone.build, operators=operators, inputs=inputs)

    def forward(self, x: Inputs, visible: Visibility | None = None, cache: ModelCache | None = None) -> Outputs:
        """Map vectors or token ids to predictions at every position; SpecError for another shape."""
        del cache  # `start_cache` makes none
        if visible is not None:
            refuse_mask(f"model {self.backbone.label!r}")
        y = self.module(x)
        out = self.inputs.vocabulary if isinstance(self.inputs, Tokens) else self.inputs.width
        if not isinstance(y, Tensor) or y.shape != (*x.shape[:2], out):
            got = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise SpecError(
                f"model {self.backbone.label!r} maps {list(x.shape)} to {got}; return a tensor {[*x.shape[:2], out]}"
            )
        return y

    def start_cache(self, tokens: int) -> NoReturn:  # noqa: ARG002
        raise NoCache(f"model {self.backbone.label!r} keeps no keys; compute it without a cache")

    def trace_layers(self, x: Tensor, visible: Tensor | None = None) -> Iterator[LayerTrace]:  # noqa: ARG002
        """Yield nothing: its layers are unknown."""
        yield from ()

    def use_positions(self, positions: Positions) -> AbstractContextManager[None]:  # noqa: ARG002  (it has none)
        return nullcontext()

    def blocks(self) -> list[Block]:
        """Return no layer of a `Transformer`."""
        return []

    def tables(self) -> list[NumberParameters]:
        """List the numbers of its attention."""
        return [each for each in self.modules() if isinstance(each, NumberParameters)]

    def numbers(self) -> Iterator[tuple[int, int | None, str, float]]:
        """Yield (layer, head or None, name, value) of every learned number, as `Transformer.numbers` does."""
        for table in self.tables():
            for head, name, value in table.learned_values():
                yield table.layer, head, name, value

    def undecayed_parameters(self) -> list[nn.Parameter]:
        return undecayed_parameters(self)

    def paths(self, length: int, dtype: torch.dtype | None = None, *, compiled: bool = False) -> list[str]:  # noqa: ARG002
        return ["foreign"]

    def operator_parameters(self) -> int:
        """Count the parameters beyond those of the same backbone with softmax in every layer."""
        return _count(self) - _softmax_parameters(self.backbone, len(self._operators), self.inputs)


Model = Transformer | ForeignModel


def make_model(
    backbone: Backbone | ForeignBackbone, operators: Layers, *, inputs: Scalars | Tokens, seed: int, path: PathName
) -> Model:
    """Build the model of a backbone. SpecError if the execution path cannot run an operator, or a user's code fails."""
    if isinstance(backbone, ForeignBackbone):
        return ForeignModel(backbone, operators, inputs=inputs, seed=seed)
    return Transformer(backbone, operators, inputs=inputs, seed=seed, path=path)


def _count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@lru_cache(maxsize=256)
def _softmax_parameters(backbone: ForeignBackbone, layers: int, inputs: Scalars | Tokens) -> int:
    return _count(build_shapes(partial(ForeignModel, backbone, (Operator(),) * layers, inputs=inputs, seed=0)))
