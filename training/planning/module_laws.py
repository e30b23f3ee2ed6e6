"""Laws of mixers and foreign backbones, tried on random input at the start of their weights and near it."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from ablate.grid.errors import SpecError
from ablate.runners.processes.process_state import reset_random
from ablate.training.planning.tried_task import one_sentence
from ablate.training.trial import Trial
from ablate.variants import Mixer, Operator, Scalars, Tokens
from ablate.variants.axes import Inputs, Outputs
from ablate.variants.model.backbone import Backbone
from ablate.variants.model.block import LayerPosition, mixer_of
from ablate.variants.model.foreign import AnyBackbone, ForeignModel
from ablate.variants.model.head_attention import HeadAttention
from ablate.variants.model.mixer import Layers, MixerLayer, refuse_mask

LONGEST: Final = 512
"""Longest sequence that is tried."""
_ENTRIES: Final = 2**22
"""Most outputs of a sequence that is tried."""
_TOLERANCE: Final = 1e-4
"""Largest difference by rounding, relative to the largest output; an FFT in float32 has 1e-6."""
_NOISE: Final = 0.02
"""Noise on weights for a second try: an output layer that starts at zero hides what the others do."""


class _Size(NamedTuple):
    """Sequences that are tried."""

    trained: int
    longest: int
    unscored: int
    """Number of first positions whose outputs do not count."""


def require_module_laws(trial: Trial) -> None:
    """Raise SpecError if a mixer or the foreign backbone of a trial breaks a law, or its task hides keys."""
    task, longest = trial.task, min(trial.longest, LONGEST)
    if task.open().batch(0, 1).visible is not None:
        mixers = (f"mixer {each.label!r}" for each in trial.operators() if isinstance(each, Mixer))
        refuse_mask(next(mixers, f"model {trial.model.label!r}"))
    size = _Size(min(task.trained_length, longest), longest, task.unscored)
    _require_laws(trial.model, trial.operators(), task.inputs, size)


@lru_cache(maxsize=256)  # cells of a grid share models; an error is not kept
def _require_laws(model: AnyBackbone, operators: Layers, inputs: Scalars | Tokens, size: _Size) -> None:
    if isinstance(model, Backbone):
        for layer, mixer in enumerate(operators):
            if isinstance(mixer, Mixer):
                module = mixer_of(model, mixer, LayerPosition(layer, {}, "auto"))
                _try(f"mixer {mixer.label!r}", module, Scalars(model.width), size, causal=model.causal)
        return
    whole, where = ForeignModel(model, operators, inputs=inputs, seed=0), f"model {model.label!r}"
    built = {each.operator for each in whole.modules() if isinstance(each, HeadAttention | MixerLayer)}
    for operator in operators:
        if operator not in built and operator.key != Operator().key:
            raise SpecError(
                f"{where} builds no layer with {operator.label!r}, so its cells would be the same; use make_layer, or "
                "leave the operator at softmax()"
            )
    _try(where, whole, inputs, size, causal=model.causal)


def _try(where: str, module: nn.Module, inputs: Scalars | Tokens, size: _Size, *, causal: bool) -> None:
    _require_trained(where, module)
    entries = inputs.vocabulary if isinstance(inputs, Tokens) else inputs.width
    most = max(2, _ENTRIES // entries)
    with one_sentence(where):
        for length in {min(size.trained, most), min(size.longest, most)}:
            x = _draw(inputs, length, 0)
            before = x.clone()
            y = _compute(module, x)
            if not y.is_floating_point() or not bool(y.isfinite().all()):
                raise SpecError(f"{where} has outputs that are not finite on random input; correct it")
            if not torch.equal(x, before):
                raise SpecError(f"{where} changes its input in place, which its model uses afterwards; copy it first")
            _require_listed(where, module, y)
        draw = _drawing(inputs, min(size.trained, most))
        with torch.no_grad():
            _require_apart(where, module, draw, size.unscored, causal=causal)
            made = torch.Generator().manual_seed(1)
            for each in module.parameters():
                each.add_(_NOISE * torch.empty_like(each).normal_(generator=made))
            _require_apart(where, module, draw, size.unscored, causal=causal)


def _require_trained(where: str, module: nn.Module) -> None:
    for name, each in module.named_parameters():
        place = name.removeprefix("module.")
        if each.dtype != torch.float32:
            raise SpecError(f"{where}: parameter {place} is {each.dtype}; training moves float32; store it so")
        if not each.requires_grad:
            raise SpecError(f"{where}: parameter {place} is frozen and training moves all; make it a buffer")


def _require_listed(where: str, module: nn.Module, y: Tensor) -> None:
    """Require that the output depends on parameters that the module lists, and on no others."""
    listed = {id(each) for each in module.parameters()}
    if listed and not y.requires_grad:
        raise SpecError(f"{where} has an output without a gradient, so nothing is trained; leave out detach, no_grad")
    for each in _leaves(y):
        if id(each) not in listed:
            raise SpecError(
                f"{where} uses a weight {list(each.shape)} that its parameters() do not list, so it is not trained; "
                "keep modules in a ModuleList and weights as nn.Parameter"
            )


def _leaves(y: Tensor) -> Iterator[Tensor]:
    """Yield the tensors from which autograd computes `y`."""
    waiting: list[Any] = [y.grad_fn]
    seen = set[Any]()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        waiting += [each for each, _ in node.next_functions]


def _require_apart(
    where: str, module: nn.Module, draw: Callable[[int], Tensor], unscored: int, *, causal: bool
) -> None:
    """Require that no sequence, and in a causal model no later token, changes an output."""
    x, other = draw(0), draw(1)
    y, length = _compute(module, x), x.shape[1]
    near = _TOLERANCE * float(y.abs().max())

    def differ(changed: Tensor, kept: tuple[slice, slice]) -> bool:
        return bool(((_compute(module, changed) - y)[kept].abs() > near).any())  # NaN near a start is no difference

    if differ(torch.stack((x[0], other[1])), (slice(0, 1), slice(None))):
        raise SpecError(f"{where} mixes the sequences of a batch, which trains in parts, too; compute each by itself")
    cuts = sorted({cut for cut in (unscored + 1, length // 2, length - 1) if unscored < cut < length})
    for cut in cuts if causal else ():
        if differ(torch.cat((x[:, :cut], other[:, cut:]), 1), (slice(None), slice(cut))):
            raise SpecError(
                f"{where} is not causal: tokens from position {cut} on change outputs before it, and the model "
                "predicts what comes next; shift or mask its input"
            )


def _compute(module: nn.Module, x: Inputs) -> Outputs:
    with reset_random(0):  # the same dropout
        return module(x)  # type: ignore[no-any-return]


def _drawing(inputs: Scalars | Tokens, length: int) -> Callable[[int], Tensor]:
    return lambda number: _draw(inputs, length, number)


def _draw(inputs: Scalars | Tokens, length: int, number: int) -> Inputs:
    """Draw two sequences of inputs."""
    made = torch.Generator().manual_seed(number)
    if isinstance(inputs, Tokens):
        return torch.randint(inputs.vocabulary, (2, length), generator=made)
    return torch.randn(2, length, inputs.width, generator=made)
