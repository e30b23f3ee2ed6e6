"""Outcomes of execution paths on random inputs, for comparison with the definition."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ablate.variants import Heads, Operator, causal, entmax15, fox, learned_sink, principled, sparsemax, ssa
from ablate.variants.attend import definition, prepare
from ablate.variants.laws.inputs import Inputs, random_inputs
from ablate.variants.operator import NumberValues
from ablate.variants.papers.principled import principled_ground, principled_margin
from ablate.variants.stages.positions import NoPositions

GROUND: dict[str, Any] = {"normaliser": {"kind": "ground"}}
SINK: dict[str, Any] = {"kind": "sink", "logit": {"init": 0.5, "per": "query"}}
GATE: dict[str, Any] = {"gate": {"kind": "suppress", "width": 4}}
ONE_SCORE_OPERATORS = [
    principled("query", gate_width=4),
    principled("head", gate_width=4, gate_dims="split").changed(name="split gate"),
    principled_ground("query"),
    principled_margin("head"),
    ssa(),
    Operator(score={"kind": "ssa"}, **GROUND, readout={"kind": "ground_value"}),
    Operator(score={"kind": "ssa"}, margin={"kind": "ssmax"}, transform={"kind": "temperature"}, **GATE),
    Operator(score={"kind": "signed_exponential"}, normaliser={"kind": "absolute"}, signals={"count": 2}),
    Operator(score={"kind": "signed_exponential"}, normaliser={"kind": "count"}),
    Operator(score={"kind": "sigmoid"}, normaliser={"kind": "none"}, margin={"kind": "log_count"}),
    Operator(score={"kind": "sigmoid"}, normaliser={"kind": "total"}, **GATE),
    Operator(score={"kind": "elu_plus_one"}, rescale={"kind": "scale"}, readout={"kind": "value_bias"}),
    Operator(score={"kind": "elu_plus_one"}, normaliser={"kind": "none"}),
    Operator(**GROUND, visible={"kind": "window", "size": 5}, preparation={"kind": "rms_norm"}),
    Operator(score={"kind": "ssa"}, visible={"kind": "prefix", "length": 7}, output_gate={"kind": "per_head"}),
    Operator(score={"kind": "signed_exponential"}, normaliser={"kind": "absolute"}, **GATE),
]
"""Operators that the paths "cpu" and "triton" compute.

Random numbers differ by as much as a choice accepts, whatever it says itself, so one of each is enough.
"""
SINKS = [
    learned_sink(),
    Operator(normaliser=SINK, visible={"kind": "window", "size": 5}, readout={"kind": "ground_value"}, **GATE),
    Operator(normaliser=SINK, margin={"kind": "ssmax"}),
]
"""Operators that the path "triton" computes besides."""
PROJECTIONS = [
    sparsemax(),
    entmax15(),
    Operator(normaliser={"kind": "entmax15"}, margin={"kind": "log_count"}, **GATE),
    Operator(score={"kind": "ssa"}, normaliser={"kind": "sparsemax"}, visible={"kind": "window", "size": 5}),
]
FORGETTING = [
    fox(),
    Operator(forgetting={"kind": "decay_times"}, normaliser={"kind": "ground"}, **GATE),
    Operator(forgetting={"kind": "forget_gate"}, normaliser={"kind": "entmax15"}),
]
"""Operators that the path "cpu" computes besides."""

Run = Callable[[Operator, Heads, NumberValues], Tensor]


def output_of(
    operator: Operator, run: Run, given: Inputs, mask: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    heads = Heads(*prepare(operator, given.q, given.k, NoPositions(), given.numbers), given.v, mask)
    return run(operator, heads._replace(bias=bias), given.numbers)


def outcome(
    operator: Operator, run: Run, inputs: Inputs, mask: Tensor | None = None, bias: Tensor | None = None
) -> dict[str, Tensor]:
    """The output, and the gradient of its squares for every input, number and the bias of positions."""
    given, trained = inputs.following(), None if bias is None else bias.clone().requires_grad_()
    output = output_of(operator, run, given, mask, trained)
    output.square().sum().backward()
    tensors = given.tensors() | ({} if trained is None else {"bias": trained})
    return {"output": output.detach()} | {
        name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in tensors.items()
    }


def defined(operator: Operator, heads: Heads, numbers: NumberValues) -> Tensor:
    return definition(operator, heads, numbers).output


def masks(length: int) -> dict[str, Tensor | None]:
    keys = torch.ones(2, 1, 1, length, dtype=torch.bool)
    keys[0, ..., length // 2 :], keys[1, ..., 0] = False, False
    holes = causal(length, length).clone()
    holes[length // 2, 0] = False
    return {"none": None, "padding": keys & causal(length, length), "encoder": keys, "holes": holes}


def tied_inputs(operator: Operator, gamma: float, length: int) -> tuple[Inputs, Tensor]:
    """Float32 inputs whose every logit is the threshold gamma, and the mean of the visible values."""
    inputs = random_inputs(operator, length=length).to(torch.float32)
    one = torch.ones_like(inputs.q[..., :1])
    values = {"normaliser.threshold": gamma, "readout.ground_value": 1e6}
    numbers = {name: torch.full_like(x, values[name]) if name in values else x for name, x in inputs.numbers.items()}
    seen = causal(length, length).to(inputs.v)
    return Inputs(gamma * one, one, inputs.v, numbers), (seen / seen.sum(-1, keepdim=True)) @ inputs.v


def turn(x: Tensor) -> Tensor:
    """Return the same values with channels that are not contiguous."""
    return x.transpose(-1, -2).contiguous().transpose(-1, -2)


def assert_definition(operator: Operator, run: Run, length: int) -> None:
    """Values and gradients are those of the definition, whatever the mask."""
    inputs = random_inputs(operator, length=length)
    for words, mask in masks(length).items():
        found, expected = outcome(operator, run, inputs, mask), outcome(operator, defined, inputs, mask)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9, msg=f"{words}: {name}")


def assert_causality(operator: Operator, run: Run, length: int) -> None:
    """A later token changes no bit of earlier ones."""
    inputs, other = (random_inputs(operator, length=length, seed=seed).to(torch.float32) for seed in (0, 1))
    came, expected = (output_of(operator, run, each.following()) for each in (inputs.join(other, 70), inputs))
    assert torch.equal(came[:, :, :70], expected[:, :, :70])


def assert_one_rounding(operator: Operator, run: Run, length: int) -> None:
    """In low precision nothing but the output is rounded."""
    given = random_inputs(operator, length=length).to(torch.float32)
    inputs = Inputs(given.q.bfloat16(), given.k.bfloat16(), given.v.bfloat16(), given.numbers)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        came = output_of(operator, run, inputs.following())
    assert torch.equal(came, output_of(operator, run, inputs.to(torch.float32).following()).bfloat16())


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, notes the most entries that one result of an operation has."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor):
            self.entries = max(self.entries, found.numel())
        return found


def most_entries(operator: Operator, run: Run, length: int) -> int:
    """Return the size of the largest result of an operation, forward and backward."""
    inputs = random_inputs(operator, length=length)
    with Largest() as noted:  # type: ignore[no-untyped-call]
        outcome(operator, run, inputs)
    return noted.entries
