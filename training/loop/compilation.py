"""Compiles model and loss, with the backward pass, into one graph; evaluations and probes are not compiled.

"auto" compiles long training on CUDA, and trains without compilation if the compiler refuses; "on" compiles or fails.
Shapes are static; if the length changes, one more graph with a dynamic length is compiled. Random numbers are the same
as without compilation; results differ by rounding.
"""

import os
import shutil
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from itertools import count
from types import FunctionType, MethodType
from typing import Any, Final, final

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.output import say
from ablate.training.trial import Trial
from ablate.variants.axes import Inputs, Visibility

LONG: Final = 5_000
"""Fewest steps for which "auto" compiles. On an H200 it saves 17 of 42 ms a step at 125M parameters, after 42 s."""
BACKEND: Final = "inductor"
_copies = count()


Pass = Callable[[Tensor, Tensor | None, Tensor], Sequence[Tensor]]
"""A forward pass from inputs, visibility mask and targets of a `Batch` to `Data.losses`."""


@final
class Forward:
    """The forward pass of training, compiled or eager; EnvironmentProblem as `compiles`."""

    def __init__(
        self,
        trial: Trial,
        device: torch.device,
        plain: Pass,
        refused: Callable[[], None],
        begins: Callable[[], None] = lambda: None,
    ) -> None:
        """`refused` is called before training goes on without compilation, `begins` before the first compiled pass."""
        self._compile, self._plain, self._run, self._before = trial.execution.compile, plain, plain, 0
        self._refused, self._begins = refused, begins
        self.graphs = 0
        """Number of graphs compiled so far."""
        self._operators = ", ".join(dict.fromkeys(each.label for each in trial.operators()))
        self._cuda = device.type == "cuda"
        if compiles(trial, device):
            model = (trial.task, trial.model, trial.operators(), trial.training.precision, trial.parts)
            self._before = _graphs()
            self._run = _compile_forward(_copy_for((*model, trial.execution.path, device), plain), device)

    @property
    def compiled(self) -> bool:
        return self._run is not self._plain

    def __call__(
        self, inputs: Inputs, visible: Visibility | None, targets: Shaped[Tensor, "batch ..."]
    ) -> Sequence[Float[Tensor, ""]]:
        """Compute the losses of a batch; SpecError if model and loss have to be compiled and cannot be.

        On CUDA, the next call overwrites them.
        """
        if not self.compiled:
            return self._plain(inputs, visible, targets)
        self._begins()
        self._begins = lambda: None
        from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

        if self._cuda:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        try:
            with _one_graph(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Dynamo detected a call to a `functools.lru_cache`")
                losses = self._run(inputs, visible, targets)
        except (TorchDynamoException, FailOnRecompileLimitHit) as error:
            _copy_function.cache_clear()  # the compiler remembers what it failed to compile
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            what = f"the model with {self._operators} or its loss cannot be compiled"
            if self._compile == "on":
                raise SpecError(f"{what} ({why}); use execution.compile='off'") from error
            say(f"{what} ({why}); training goes on without")
            self._run = self._plain
            self._refused()
            return self._plain(inputs, visible, targets)
        self.graphs = _graphs() - self._before
        return losses


def compiles(trial: Trial, device: torch.device) -> bool:
    """Return True if `trial` is compiled on `device`; EnvironmentProblem if it has to be and no compiler is there."""
    wanted = trial.execution.compile
    if wanted == "off":
        return False
    missing = None if BACKEND != "inductor" else _missing(device)
    if wanted == "auto":
        long = trial.training.steps >= LONG
        return device.type == "cuda" and long and missing is None
    if missing is not None:
        raise EnvironmentProblem(f"execution.compile is 'on', which needs {missing}; install it, or use 'off'")
    return True


def _missing(device: torch.device) -> str | None:
    """Name the compiler or package that is missing on this machine."""
    cuda = device.type == "cuda"
    compiler = os.environ.get("CC" if cuda else "CXX")
    if not any(map(shutil.which, [compiler] if compiler else ["gcc", "clang"] if cuda else ["g++", "clang++"])):
        return f"a C{'' if cuda else '++'} compiler (gcc, clang or the one that {'CC' if cuda else 'CXX'} names)"
    return "the package triton" if cuda and find_spec("triton") is None else None


def _compile_forward(plain: Pass, device: torch.device) -> Pass:
    options: dict[str, Any] = {
        "triton.cudagraphs": device.type == "cuda",
        "fallback_random": True,
        "compile_threads": 1,
    }
    compiled: Callable[..., Any] = torch.compile(
        plain, fullgraph=True, backend=BACKEND, options=options if BACKEND == "inductor" else None
    )
    return compiled


def _graphs() -> int:
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def _copy_for(model: Hashable, method: Any) -> Pass:
    """Return a method whose graphs are kept for `model`; the compiler keeps them by code object, for all trials."""
    return MethodType(_copy_function(model, method.__func__), method.__self__)


@lru_cache(maxsize=64)
def _copy_function(_model: Hashable, function: FunctionType) -> FunctionType:
    return copy_function(function)


def copy_function(function: FunctionType) -> FunctionType:
    """Return `function` with a code object of its own, of which the compiler keeps eight graphs."""
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_copies)}")
    return FunctionType(code, function.__globals__, closure=function.__closure__)


@contextmanager
def _one_graph() -> Iterator[None]:
    """Raise an error if the compiler gives up on a function, and compile the backward pass at once."""
    import torch._dynamo
    import torch._functorch.config

    config: Any = torch._dynamo.config
    backward: Any = torch._functorch.config
    said, at_once = config.fail_on_recompile_limit_hit, backward.force_non_lazy_backward_lowering
    config.fail_on_recompile_limit_hit = backward.force_non_lazy_backward_lowering = True
    try:
        yield
    finally:
        config.fail_on_recompile_limit_hit, backward.force_non_lazy_backward_lowering = said, at_once
