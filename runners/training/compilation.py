"""The forward pass of training as one compiled graph, with its backward; evaluations and probes are not compiled.

A small model on a GPU waits for its kernels to be launched: one graph is launched at once. `execution.compile` says:

    "auto"   compiled on CUDA where the model is small, training long, and the compilers are there; where the compiler
             refuses the model, training goes on without, and the log says so
    "on"     compiled on any device, or refused with the reason
    "off"    not compiled

Shapes are static. When the length of sequences changes for the first time, as in a curriculum, one more graph is
compiled for which it is an argument. Random numbers are drawn as without compilation. Results differ from
those without it by rounding. `cost.graphs` of an attempt says how many graphs were compiled; without it, none were.
"""

import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final, Protocol, final

import torch
from torch import Tensor

from grid.errors import EnvironmentProblem, SpecError
from runners.output import say
from runners.trial import Trial

SMALL: Final = 50_000_000
"""Parameters up to which "auto" compiles. No GPU was measured: larger models keep one busy by themselves."""
LONG: Final = 5_000
"""Steps from which "auto" compiles. No GPU was measured: it takes about the time of thousands of small steps."""
BACKEND: Final = "inductor"
_tries = Counter[str]()
"""Functions that this process has given to the compiler, which remembers those it failed at, too."""


class Pass(Protocol):
    """A forward pass."""

    def __call__(self, inputs: Tensor, visible: Tensor | None, /) -> Tensor:
        """Inputs and what is visible as in a `Batch`, to outputs."""


@final
class Forward:
    """The forward pass of training, compiled or as it is.

    Raises:
        EnvironmentProblem: `execution.compile` is "on" and there is no compiler for the code that is generated.
    """

    def __init__(self, trial: Trial, device: torch.device, parameters: int, plain: Pass) -> None:
        self._compile, self._plain, self._run, self._before = trial.execution.compile, plain, plain, 0
        self._made, self._operators = 0, ", ".join(dict.fromkeys(each.label for each in trial.operators()))
        self._compiled, self._cuda = compiles(trial, device, parameters), device.type == "cuda"
        if self._compiled:
            self._before = _graphs()
            self._run = _compiled(plain, device)

    @property
    def graphs(self) -> int:
        """How many were compiled so far."""
        return self._made

    def __call__(self, inputs: Tensor, visible: Tensor | None) -> Tensor:
        """Outputs of the model in training.

        Raises:
            SpecError: `execution.compile` is "on" and the compiler refuses the model.
        """
        if self._run is self._plain:
            return self._plain(inputs, visible)
        from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

        if self._cuda:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Dynamo detected a call to a `functools.lru_cache`")
                outputs = self._run(inputs, visible)
        except (TorchDynamoException, FailOnRecompileLimitHit) as error:
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            what = f"the model with {self._operators} cannot be compiled"
            if self._compile == "on":
                raise SpecError(f"{what} ({why}); use execution.compile='off'") from error
            say(f"{what} ({why}); training goes on without")
            self._run = self._plain
            return self._plain(inputs, visible)
        self._made = _graphs() - self._before
        return outputs


def compiles(trial: Trial, device: torch.device, parameters: int) -> bool:
    """Whether `trial` is to be compiled on `device`, as the module says.

    Raises:
        EnvironmentProblem: it is and cannot be here.
    """
    wanted = trial.execution.compile
    if wanted == "off":
        return False
    missing = None if BACKEND != "inductor" else _missing(device)
    if wanted == "auto":
        long = trial.training.steps >= LONG
        return device.type == "cuda" and parameters <= SMALL and long and missing is None
    if missing is not None:
        raise EnvironmentProblem(f"execution.compile is 'on', which needs {missing}; install it, or use 'off'")
    return True


def _missing(device: torch.device) -> str | None:
    """Return what generated code needs and this machine lacks."""
    cuda = device.type == "cuda"
    given = os.environ.get("CC" if cuda else "CXX")
    if not any(map(shutil.which, [given] if given else ["gcc", "clang"] if cuda else ["g++", "clang++"])):
        return (
            "a C compiler (gcc, clang or the one that CC names)"
            if cuda
            else ("a C++ compiler (g++, clang++ or the one that CXX names)")
        )
    return "the package triton" if cuda and find_spec("triton") is None else None


def _compiled(plain: Pass, device: torch.device) -> Pass:
    _tries["forward"] += 1
    cuda = device.type == "cuda"
    options: dict[str, Any] = {"triton.cudagraphs": cuda, "fallback_random": True, "compile_threads": 1}
    own: Callable[..., Any] = torch.compile(
        plain, fullgraph=True, backend=BACKEND, options=options if BACKEND == "inductor" else None
    )
    return own


def _graphs() -> int:
    """How many this process has compiled so far."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


@contextmanager
def graphs_forgotten() -> Iterator[None]:
    """Forget the compiled graphs afterwards, so that the next trial of a worker starts as its first one.

    A compiler that gives up on a function raises an error inside. The backward pass is compiled with the forward pass:
    a later compilation would raise its errors too late to train without it.
    """
    import torch._dynamo
    import torch._functorch.config

    config: Any = torch._dynamo.config
    backward: Any = torch._functorch.config
    before, said = _tries.total(), config.fail_on_recompile_limit_hit
    at_once = backward.force_non_lazy_backward_lowering
    config.fail_on_recompile_limit_hit = backward.force_non_lazy_backward_lowering = True
    try:
        yield
    finally:
        config.fail_on_recompile_limit_hit, backward.force_non_lazy_backward_lowering = said, at_once
        if _tries.total() != before:
            torch._dynamo.reset()
