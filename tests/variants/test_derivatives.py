"""Second derivatives and transforms of `torch.func`, by path: those of the definition, or refused in a sentence."""

from collections.abc import Callable

import pytest
import torch
from path_outcomes import GATE, Run, defined
from torch import Tensor
from torch.autograd import forward_ad, functional
from torch.func import grad, hessian, jvp, vmap

from ablate.grid.errors import SpecError
from ablate.variants import Heads, Operator, Scalars, Transformer, differential, entmax15, fox, gpt2, ssa
from ablate.variants.attend import prepare
from ablate.variants.laws.examples import named_operators
from ablate.variants.laws.inputs import Inputs, random_inputs
from ablate.variants.operator import causal, distances
from ablate.variants.paths import cpu, linear, sdpa, triton
from ablate.variants.paths.choose import PathName
from ablate.variants.stages import positions
from ablate.variants.stages.positions import Alibi, NoPositions, Rotary, Sinusoidal

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),  # by forward mode
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
]
LENGTH = 12
Function = Callable[[Tensor], Tensor]
How = Callable[[Function, Tensor, Tensor], Tensor]
"""(function, point, direction) -> derivative."""


def name(each: object) -> str:
    return str(getattr(each, "label", each))


def twice(f: Function, x: Tensor, d: Tensor) -> Tensor:
    """Differentiate d . grad f + x . x: a path that only falls silent would leave its summand out."""
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(f(x), x, create_graph=True)
    return torch.autograd.grad((slope * d).sum() + x.square().sum(), x)[0]


def twice_outside(f: Function, x: Tensor, d: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad((grad(f)(x) * d).sum() + x.square().sum(), x)[0]


def in_forward_mode(f: Function, x: Tensor, d: Tensor) -> Tensor:
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, d))).tangent
        assert tangent is not None
        return tangent


def batched(f: Function, x: Tensor, d: Tensor) -> Tensor:
    x, y = x.clone().requires_grad_(), d.sum()[None]
    return torch.autograd.grad(f(x), x, y, is_grads_batched=True)[0][0]


def batched_by_func(f: Function, x: Tensor, d: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    y = f(x)
    return vmap(lambda slope: torch.autograd.grad(y, x, slope)[0])(d.sum()[None])[0]


SECOND: dict[str, How] = {
    "torch.autograd.grad": twice,
    "hvp": lambda f, x, d: functional.hvp(f, x, d)[1],
    "grad of grad": lambda f, x, d: grad(lambda y: (grad(f)(y) * d).sum())(x),
    "torch.autograd.grad of grad": twice_outside,
    "jvp of grad": lambda f, x, d: jvp(grad(f), (x,), (d,))[1],
    "hessian": lambda f, x, d: hessian(lambda step: f(x + step * d))(torch.zeros((), dtype=x.dtype)),
}
FIRST: dict[str, How] = {
    "create_graph": lambda f, x, _: functional.vjp(f, x, create_graph=True)[1],
    "jvp": lambda f, x, d: jvp(f, (x,), (d,))[1],
    "forward mode": in_forward_mode,
    "grad": lambda f, x, _: grad(f)(x),
    "vmap": lambda f, x, d: vmap(grad(f))(torch.stack((x, d)))[0],
    "batched": batched,
    "batched by vmap": batched_by_func,
}
IDENTITY = {"score": {"kind": "identity"}, "product": {"kind": "linear_elu"}}
FUSED = [
    ("sdpa", Operator()),
    ("sdpa", Operator(extra={"kind": "key_value_bias"}, rescale={"kind": "affine"})),
    ("sdpa", Operator(normaliser={"kind": "sink"})),
    ("cpu", ssa()),
    ("cpu", Operator(normaliser={"kind": "ground"}, **GATE)),
    ("cpu", entmax15()),
    ("cpu", fox()),
    ("triton", ssa()),
    ("triton", Operator(normaliser={"kind": "sink"})),
]
PLAIN = [("sdpa", differential()), ("linear", Operator(**IDENTITY)), ("reference", ssa())]
RUN: dict[str, Run] = {
    "sdpa": sdpa.run, "cpu": cpu.run, "linear": linear.run, "triton": triton.run, "reference": defined,
}  # fmt: skip


def along(operator: Operator, run: Run, inputs: Inputs, which: str) -> Function:
    """The sum of squares of the output, as a function of one input."""

    def f(x: Tensor) -> Tensor:
        given = inputs._replace(**{which: x})
        heads = Heads(*prepare(operator, given.q, given.k, NoPositions(), given.numbers), given.v)
        return run(operator, heads, given.numbers).square().sum()

    return f


def given(operator: Operator, which: str) -> tuple[Inputs, Tensor]:
    inputs = random_inputs(operator, batch=1, length=LENGTH)
    return inputs, torch.randn(getattr(inputs, which).shape, generator=torch.Generator().manual_seed(3)).double()


def derive(path: str, operator: Operator, how: How, which: str) -> Tensor | None:
    """Return a derivative by `path`; None if it is refused with its remedy."""
    if path == "triton":
        pytest.importorskip("triton")
    inputs, d = given(operator, which)
    dtype = torch.float32 if path == "triton" else torch.float64
    inputs = inputs.to(dtype)
    try:
        return how(along(operator, RUN[path], inputs, which), getattr(inputs, which), d.to(dtype)).detach().double()
    except SpecError as error:
        refused = str(error)
    assert path == "reference" or 'path="reference"' in refused
    return None


def assert_defined(found: Tensor, path: str, operator: Operator, how: How, which: str) -> None:
    inputs, d = given(operator, which)
    expected = how(along(operator, defined, inputs, which), getattr(inputs, which), d).detach()
    within = 1e-4 if path == "triton" else 1e-9
    torch.testing.assert_close(found, expected, rtol=within, atol=within * float(expected.abs().max()))


@pytest.mark.parametrize("which", ["q", "v"])
@pytest.mark.parametrize("how", SECOND)
@pytest.mark.parametrize(("path", "operator"), FUSED, ids=name)
def test_a_second_derivative_of_a_fused_path_is_refused(path: str, operator: Operator, how: str, which: str) -> None:
    assert derive(path, operator, SECOND[how], which) is None


@pytest.mark.parametrize("how", SECOND)
@pytest.mark.parametrize(("path", "operator"), PLAIN, ids=name)
def test_a_second_derivative_of_plain_operations_is_that_of_the_definition(
    path: str, operator: Operator, how: str
) -> None:
    found = derive(path, operator, SECOND[how], "q")
    assert found is not None
    assert_defined(found, path, operator, SECOND[how], "q")


@pytest.mark.parametrize("how", FIRST)
@pytest.mark.parametrize(("path", "operator"), [*FUSED, *PLAIN, ("reference", entmax15())], ids=name)
def test_a_first_derivative_is_that_of_the_definition_or_refused(path: str, operator: Operator, how: str) -> None:
    found = derive(path, operator, FIRST[how], "q")
    assert found is not None or how != "create_graph"
    if found is not None:
        assert_defined(found, path, operator, FIRST[how], "q")


@pytest.mark.parametrize("how", ["jvp", "grad", "vmap"])
def test_plain_softmax_has_transforms_of_torch_func_but_for_forward_mode(how: str) -> None:
    assert (derive("sdpa", Operator(), FIRST[how], "q") is None) == (how == "jvp")


@pytest.mark.parametrize("operator", [*named_operators()], ids=name)
def test_second_derivatives_of_the_definition_are_differences_of_first_ones(operator: Operator) -> None:
    """Along a random direction of all inputs and numbers."""
    inputs, made = random_inputs(operator, batch=1, length=9), torch.Generator().manual_seed(1)
    start = inputs.tensors()
    step = {each: torch.randn(x.shape, generator=made, dtype=x.dtype) for each, x in start.items()}

    def slope(t: float) -> tuple[Tensor, Tensor]:
        """Return the position on the line and the derivative along it."""
        at = torch.tensor(t, dtype=torch.float64, requires_grad=True)
        q, k, v, *numbers = (x + at * step[each] for each, x in start.items())
        moved = Inputs(q, k, v, dict(zip(inputs.numbers, numbers, strict=True)))
        loss = along(operator, defined, moved, "q")(q)
        return at, torch.autograd.grad(loss, at, create_graph=True)[0]

    at, first = slope(0.0)
    (second,) = torch.autograd.grad(first, at)
    ahead, behind = (slope(each)[1].item() for each in (1e-5, -1e-5))
    assert second.item() == pytest.approx((ahead - behind) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("operator", [Operator(), ssa()], ids=name)
def test_a_gradient_penalty_of_a_model_needs_the_definition(operator: Operator) -> None:
    """At 64 tokens, path "auto" is fused; a residual connection goes past it."""

    def penalise(path: PathName) -> Tensor:
        model = Transformer(gpt2(layers=1, heads=2, width=8), [operator], inputs=Scalars(), seed=0, path=path).double()
        x = torch.linspace(-1, 1, 64, dtype=torch.float64)[None, :, None].requires_grad_()
        (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), x)[0]

    with pytest.raises(SpecError):
        penalise("auto")
    assert penalise("reference").abs().min() > 0


def test_masks_and_positions_made_within_a_transform_do_not_escape_it() -> None:
    for cached in (causal, distances, positions._waves, positions._sines):
        cached.cache_clear()
    for make in (Rotary, Sinusoidal, Alibi):
        model = Transformer(
            gpt2(layers=1, heads=2, width=16).changed(positions=make()),
            [ssa()],
            inputs=Scalars(3),
            seed=0,
            path="reference",
        )

        def loss(x: Tensor, model: Transformer = model) -> Tensor:
            return model(x).square().sum()

        x = torch.randn(1, LENGTH, 3)
        first, again = (jvp(grad(loss), (x,), (x,))[1] for _ in range(2))
        assert torch.equal(first, again)
        loss(x).backward()
