"""Errors of every named operator on every execution path against its definition in float64.

python benchmarks/exactness.py [--device cuda] [--processes 8] [--operators ssa cog] [--write FILE]

Inputs are random, of 257 tokens: causal of 64 and of 128 channels, and with padding of 64. Each row has the largest
error of the output and of the gradient of its squares for each input and number, as a share of the largest entry. It
also has the error of the formula on the same inputs: the definition in float32, or, in low precision, with the result
of every step rounded. The budget is `FACTOR` times that error plus `ROUNDING`; `within` says whether the path keeps it.
`repeats` says whether a second call gives the same bits. The exit code is 1 if a row fails or is beyond its budget.
"""

import math
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, nullcontext
from itertools import chain, product
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch
from attention import describe
from measurement import Results, describe_error, make_parser
from torch import Tensor

from ablate.variants import Heads, Operator, causal
from ablate.variants.attend import prepare
from ablate.variants.laws.inputs import InputFit, Inputs, fit, random_inputs
from ablate.variants.laws.precision import EveryStepRounded
from ablate.variants.papers.catalogue import catalogue
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PATHS, Path as ExecutionPath
from ablate.variants.stages.positions import NoPositions

LENGTH = 257
DTYPES = ("float32", "bfloat16", "float16")
FACTOR = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}
ROUNDING = {torch.float32: 2**-15, torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""In float32, logits of this size are rounded by up to 2^-19 each time, and weights by as large a share."""


class Setting(NamedTuple):
    """Precision, channels of a head and mask of a row."""

    dtype: torch.dtype
    channels: int
    padded: bool

    def described(self) -> dict[str, Any]:
        dtype = str(self.dtype).removeprefix("torch.")
        return {"dtype": dtype, "channels": self.channels, "mask": "padding" if self.padded else "causal"}


def outcome(operator: Operator, path: ExecutionPath, inputs: Inputs, mask: Tensor | None) -> dict[str, Tensor]:
    """Return the output, and the gradient of its squares for every input and number."""
    given = inputs.following()
    heads = Heads(*prepare(operator, given.q, given.k, NoPositions(), given.numbers), given.v, mask)
    output = path.run(operator, heads, given.numbers)
    output.float().square().sum().backward()  # type: ignore[no-untyped-call]
    gradients = {name: x.grad for name, x in given.tensors().items() if x.grad is not None}
    return {"output": output.detach(), **gradients}


def errors(came: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    """Return the largest error of each result, as a share of its largest entry; infinite if it has no number."""
    found = {}
    for name, x in exact.items():
        error = float((came[name].double() - x.double()).abs().max() / (x.abs().max() + 1e-30))
        found[name] = float("inf") if math.isnan(error) else error
    return found


def short(x: float) -> float:
    return float(f"{x:.3g}")


def measure(name: str, setting: Setting, device: str) -> list[dict[str, Any]]:
    """Return the row of every path that can compute the operator."""
    operator = catalogue()[name].make()
    fitted = InputFit(fit(operator).heads, setting.channels, rotary=False)
    rounded = random_inputs(operator, length=LENGTH, fitted=fitted).to(torch.float32).map(lambda x: x.to(device))
    if setting.dtype != torch.float32:
        q, k, v = (x.to(setting.dtype) for x in rounded[:3])
        rounded = rounded._replace(q=q, k=k, v=v)
    mask = None
    if setting.padded:
        keys = torch.ones(2, 1, 1, LENGTH, dtype=torch.bool, device=device)
        keys[0, ..., LENGTH // 2 :] = False
        mask = keys & causal(LENGTH, LENGTH).to(device)
    case, definition = Case(LENGTH, LENGTH, device, setting.dtype, channels=setting.channels), PATHS[-1]
    exact = outcome(operator, definition, rounded.to(torch.float64), mask)
    with nullcontext() if setting.dtype == torch.float32 else EveryStepRounded(setting.dtype):
        usual = errors(outcome(operator, definition, rounded.to(torch.float32), mask), exact)
    rows = []
    for path in PATHS:
        if path.reason(operator, case) is not None:
            continue
        row: dict[str, Any] = {"operator": name, "path": path.name, **setting.described()}
        try:
            first, second = (outcome(operator, path, rounded, mask) for _ in range(2))
        except Exception as error:  # noqa: BLE001  # a kernel that fails is a row, and loses no other
            rows.append({**row, "within": False, "error": describe_error(error)})
            continue
        error_of = errors(first, exact)
        factor, rounding = FACTOR[setting.dtype], ROUNDING[setting.dtype]
        share = {name: error / (factor * usual[name] + rounding) for name, error in error_of.items()}
        worst = max(share, key=share.__getitem__)
        row |= {"worst": worst, "largest_error": short(error_of[worst]), "error_of_formula": short(usual[worst])}
        finite = all(map(math.isfinite, (*error_of.values(), *usual.values())))
        row |= {"share_of_budget": round(share[worst], 3), "within": finite and share[worst] <= 1}
        rows.append({**row, "repeats": all(torch.equal(first[name], second[name]) for name in first)})
    return rows


def main() -> None:
    """Print one JSON line for the machine and one for each operator, path and setting; write them if asked."""
    parser = make_parser(__doc__)
    parser.add_argument("--operators", nargs="+", default=list(catalogue()))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["float32", "bfloat16"])
    parser.add_argument("--channels", nargs="+", type=int, default=[64, 128])
    parser.add_argument("--processes", type=int, default=1, help="most kernels take longer to compile than to run")
    given = parser.parse_args()
    results, failed = Results({**describe(given.device), "length": LENGTH}, given.write), False
    dtypes = [getattr(torch, name) for name in given.dtypes]
    settings = [Setting(*each) for each in product(dtypes, given.channels, (False, True)) if each[1:] != (128, True)]
    cases = [*product(given.operators, settings, (given.device,))]
    with ExitStack() as stack:
        each: Callable[..., Iterable[list[dict[str, Any]]]] = map
        if given.processes > 1:
            each = stack.enter_context(ProcessPoolExecutor(given.processes, mp_context=get_context("spawn"))).map
        for row in chain.from_iterable(each(measure, *zip(*cases, strict=True))):
            results.add(row)
            failed |= not row["within"]
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
