"""The functions `on_step` and `on_evaluation` of a spec file: calls of the user's own logging during training."""

import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

from ablate.grid import Spec
from ablate.runners.provenance.code import spec_module_name


class LoggedRun(NamedTuple):
    """The attempt that a callback is about."""

    key: str
    """Key of the trial."""
    grid: str
    label: str
    """Label of the cell."""
    seed: int
    attempt: int
    trial: Spec


@final
class Callbacks:
    """Calls the functions of some spec files. One that raises is reported once and not called again in the attempt."""

    def __init__(self, files: Iterable[Path], run: LoggedRun | None = None) -> None:
        """Without `run`, nothing is called."""
        self._run = run
        self._files = [*files] if run is not None else []
        self._functions = {name: self._find(name) for name in ("on_step", "on_evaluation")}

    def on_step(self, step: int, values: Mapping[str, float]) -> None:
        self._call("on_step", step, dict(values))

    def on_evaluation(self, step: int, name: str, value: float, point: Mapping[str, float]) -> None:
        self._call("on_evaluation", step, name, float(value), dict(point))

    def _find(self, name: str) -> list[Callable[..., Any]]:
        modules = (sys.modules.get(spec_module_name(file)) for file in self._files)
        return [function for module in modules if callable(function := getattr(module, name, None))]

    def _call(self, name: str, *arguments: Any) -> None:
        for function in [*self._functions[name]]:
            try:
                function(self._run, *arguments)
            except Exception:  # noqa: BLE001  # the user's logging must not end a training
                self._functions[name].remove(function)
                sys.stderr.write(f"{name} raised an error and is not called again:\n{traceback.format_exc()}")
