"""The law of low precision: bfloat16 inputs cost what rounding costs, and no more."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ablate.variants.laws.inputs import Inputs, random_inputs
from ablate.variants.laws.law import Law, NothingStated, near, require
from ablate.variants.laws.paths import run_path
from ablate.variants.operator import Operator
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PATHS


class EveryStepRounded(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types for it
    """While entered, the result of every tensor operation is rounded to `dtype`: a naive evaluation."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dtype = dtype

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        return tree_map(lambda x: self._round(x, args), result)

    def _round(self, x: Any, args: tuple[Any, ...]) -> Any:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        if any(x is each for each in args):  # in place
            return x.copy_(x.to(self._dtype))
        return x.to(self._dtype).to(x.dtype)


def _low_precision(operator: Operator) -> None:
    """The definition rounds its output and nothing else; a faster path may round what it hands to a fused kernel."""
    inputs = random_inputs(operator, scale=2.0, seed=7).to(torch.float32)
    rounded = Inputs(inputs.q.bfloat16(), inputs.k.bfloat16(), inputs.v.bfloat16(), inputs.numbers)
    wide = rounded.to(torch.float32)
    came, expected = (x.attend(operator).output for x in (rounded, wide))
    near(came, expected.bfloat16(), "bfloat16 inputs, against the same numbers in float32, the output rounded once")
    others = [path for path in PATHS[:-1] if path.reason(operator, Case(13, 13)) is None]
    if not others:
        return
    exact = run_path("reference", operator, rounded.to(torch.float64))
    with EveryStepRounded():
        naive = run_path("reference", operator, wide)
    most = 2 * float((naive.double() - exact).abs().max())
    for path in others:
        error = float((run_path(path.name, operator, rounded).double() - exact).abs().max())
        rule = f"expected an error of at most {most:.3g}, twice that of rounding every step"
        require(error <= most, f"{rule}, came {error:.3g}, for bfloat16 inputs on path {path.name!r}")


def _small_weights(operator: Operator) -> None:
    """Check a ground state or sink of little weight, on large logits. A difference of two maps may cancel: skip it."""
    if not operator.normaliser.has_ground or not operator.merge.of_logits:
        raise NothingStated
    inputs = random_inputs(operator, scale=2.5, seed=3).to(torch.float32)
    grounds = (x.attend(operator).ground for x in (inputs, inputs.to(torch.float64)))
    came, expected = (torch.empty(0) if x is None else x.double() for x in grounds)
    near(came, expected, "the ground state's or sink's weight in float32", rtol=1e-3, atol=1e-30)


LAWS = (
    Law(
        "low precision",
        "On bfloat16 inputs the definition rounds its output only, and every path errs at most twice as much as "
        "rounding every step does.",
        _low_precision,
    ),
    Law("small weights", "A small weight of a ground state or sink has as many digits as a large one.", _small_weights),
)
