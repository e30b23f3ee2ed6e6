"""The law that paths agree: each that can run an operator on a CPU computes what the definition does."""

import torch
from torch import Tensor

from ablate.variants.attend import Heads, prepare
from ablate.variants.axes import HeadOutput
from ablate.variants.laws.inputs import Inputs, random_inputs
from ablate.variants.laws.law import Law, equal, finite, require
from ablate.variants.laws.visibility import gradients
from ablate.variants.operator import Operator, causal
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PATHS
from ablate.variants.stages.positions import NoPositions


def _paths(operator: Operator) -> None:
    """Compare outputs and gradients with the definition's, whose mask is written out."""
    able = [path for path in PATHS if path.cannot(operator) is None]
    require(able[-1:] == [PATHS[-1]], f"path {PATHS[-1].name!r} runs everything, and says it cannot run this")
    inputs = random_inputs(operator)
    heads, made = inputs.q.shape[1], torch.Generator().manual_seed(9)
    blind, seen = causal(13, 13).clone(), torch.ones(2, 1, 13, 13, dtype=torch.bool)
    blind[5] = False
    seen[0, :, :, 9:], seen[1, :, 4], seen[:, 0, 7] = False, False, False
    bias = torch.randn(1, heads, 13, 13, generator=made, dtype=torch.float64)
    cases: dict[str, tuple[Tensor | None, Tensor | None]] = {
        "no mask": (None, None),
        "a position bias": (None, bias),
        "a mask and a position bias": (causal(13, 13).flip(0), bias),
        "a query that sees nothing": (blind, None),
        "a position bias and a query that sees nothing": (blind, bias),
        "a mask of keys [B, 1, 1, T]": (seen[:, :, :1], None),
        "a mask of queries [B, 1, T, 1]": (seen[..., 2:3], None),
        "a mask of keys [T]": (seen[0, 0, 0], None),
    }
    for words, (mask, added) in cases.items():
        whole = None if mask is None else mask.expand(2, heads, 13, 13).contiguous()
        expected = _along(operator, inputs, Heads(inputs.q, inputs.k, inputs.v, whole, added), PATHS[-1].name)
        finite(expected["output"], f"path 'reference' with {words}")
        there = Heads(inputs.q, inputs.k, inputs.v, mask, added)
        for path in able if words.startswith("a mask of") else able[:-1]:
            if path.cannot_call(Case.of(there)) is None:
                for name, value in _along(operator, inputs, there, path.name).items():
                    equal(value, expected[name], f"path {path.name!r} with {words}: {name}")


def run_path(name: str, operator: Operator, inputs: Inputs, heads: Heads | None = None) -> HeadOutput:
    """Compute the output on the path `name`; `heads` gives a mask and a position bias."""
    (path,) = (path for path in PATHS if path.name == name)
    q, k = prepare(operator, inputs.q, inputs.k, NoPositions(), inputs.numbers)
    return path.run(operator, (heads or Heads(q, k, inputs.v))._replace(q=q, k=k, v=inputs.v), inputs.numbers)


def _along(operator: Operator, inputs: Inputs, heads: Heads, name: str) -> dict[str, Tensor]:
    there = inputs.following()
    came = run_path(name, operator, there, heads)
    return {"output": came.detach(), **gradients(came.square().sum(), there)}


LAWS = (Law("paths", "Every path of the CPU that can run it has the outputs and gradients of the definition.", _paths),)
