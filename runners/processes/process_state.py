"""Keeps trials of one process apart: what a trial changes of the process is found, named and restored.

A worker compares with its state after it loaded the spec files. So what a spec file does when it is loaded holds for
all trials, and is hashed with them. An installed package that a trial imports first may set something, too: that is
restored at the end of the import. Else a trial would have it or not, depending on the trials before.
"""

import importlib.abc
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader, SourcelessFileLoader
from itertools import chain
from types import ModuleType
from typing import Any, Final, final

from ablate.runners.output import say
from ablate.runners.processes.core_functions import CoreFunctions
from ablate.runners.processes.process_settings import SharedSetting, numpy_settings, python_settings, torch_settings
from ablate.runners.provenance.origin import is_installed

MOST_NAMED: Final = 20
"""Most changes that a record names."""

_TABLES: Final[Mapping[str, Callable[[], Iterator[tuple[str, SharedSetting]]]]] = {
    "sys": python_settings,
    "numpy": numpy_settings,
    "torch": torch_settings,
}
_FILE_LOADERS: Final = (SourceFileLoader, SourcelessFileLoader, ExtensionFileLoader)


@final
class ProcessState:
    """The state of this process as it is now. Later comparisons are with this state.

    Settings of numpy and torch are taken when these have been loaded.
    """

    def __init__(self) -> None:
        self._settings: dict[str, SharedSetting] = {}
        self._before: dict[str, Any] = {}
        self._tables = dict(_TABLES)
        self._functions = CoreFunctions()
        self._take_loaded()

    def changes(self) -> list[str]:
        """Return the names of what differs from the state."""
        names: list[str] = []
        for name, setting in self._settings.items():
            before, now = self._before[name], _read(setting)
            if before != now:
                names += _variables(before, now) if name == "environment" else [name]
        names += self._functions.changed()
        self._take_loaded()
        return names if len(names) <= MOST_NAMED else [*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} more"]

    def restore(self) -> list[str]:
        """Restore the state; return the names of what still differs."""
        self._functions.restore()
        _write(self._settings, self._before)
        return self.changes()

    def retake(self, *names: str) -> None:
        """Take these settings as they are now; without names, the whole state."""
        for name in names or self._settings:
            self._before[name] = _read(self._settings[name])
        if not names:
            self._functions.retake()

    def _take_loaded(self) -> None:
        for module in [name for name in self._tables if name in sys.modules]:
            loaded = dict(self._tables.pop(module)())
            self._settings |= loaded
            self._before |= {name: _read(setting) for name, setting in loaded.items()}

    @contextmanager
    def isolate(self, seed: int) -> Iterator[None]:
        """Reset random numbers, and restore what installed packages set when this thread first imports them."""
        finder = _Finder(self._keep)
        sys.meta_path.insert(0, finder)
        _active.append(self)
        try:
            with reset_random(seed):
                yield
        finally:
            _active.remove(self)
            sys.meta_path.remove(finder)

    def _keep(self, load: Callable[[], Any]) -> Any:
        """Return `load()`, and restore the settings and functions that it changes."""
        before = {name: _read(setting) for name, setting in self._settings.items()}
        changed = self._functions.changed()
        try:
            return load()
        finally:
            _write(self._settings, before)
            self._functions.restore(leave=changed)


def _read(setting: SharedSetting) -> Any:
    try:
        return setting.read()
    except Exception as error:  # noqa: BLE001  # torch refuses to tell, or a trial deleted what tells; either way a change
        return str(error)


def _write(settings: Mapping[str, SharedSetting], values: Mapping[str, Any]) -> None:
    """Restore the settings that differ. One that refuses its value stays as it is, which a comparison shows."""
    for name, setting in settings.items():
        if setting.write is not None and _read(setting) != values[name]:
            try:
                setting.write(values[name])
            except (OSError, RuntimeError, TypeError, ValueError, AttributeError) as error:
                sys.stderr.write(f"{name} could not be restored: {error}\n")


def _variables(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    names = dict.fromkeys(chain(before, now))
    return [f"environment variable {name}" for name in names if before.get(name) != now.get(name)]


@final
class _Finder(importlib.abc.MetaPathFinder):
    """Has `keep` run the code of each installed package that one thread imports; nested imports belong to the outer."""

    def __init__(self, keep: Callable[[Callable[[], Any]], Any]) -> None:
        self._keep, self._thread, self._inside = keep, threading.get_ident(), False

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if self._inside or threading.get_ident() != self._thread or name.partition(".")[0] == "torch":
            return None
        others = (each.find_spec(name, path, target) for each in sys.meta_path if each is not self)
        spec = next(filter(None, others), None)
        loader: Any = None if spec is None else spec.loader
        if isinstance(loader, _FILE_LOADERS) and is_installed(loader.path):
            for step in ("create_module", "exec_module"):  # a library in C acts in the first
                setattr(loader, step, partial(self._run, getattr(loader, step)))
        return spec

    def _run(self, step: Callable[[Any], Any], argument: Any) -> Any:
        if self._inside:
            return step(argument)
        self._inside = True
        try:
            return self._keep(partial(step, argument))
        finally:
            self._inside = False


_active: list[ProcessState] = []
"""The states that trials at work are compared with, the innermost last."""


@contextmanager
def contain(seed: int, device: str, tell: Callable[[str], None] = say) -> Iterator[None]:
    """Keep what training changes of the process from what follows, and tell of it.

    Inside a worker's trial, only take in what torch sets when it first uses `device`.
    """
    if device == "cuda":
        _choose_attention()
    if _active:
        if device == "cuda":
            _active[-1].retake("order of attention kernels")
        yield
        return
    state = _state_outside_workers()
    state.retake()
    try:
        with state.isolate(seed):
            yield
    finally:
        if changes := state.changes():
            state.restore()
            tell(f"the trial changed this process: {', '.join(changes)}; what can be restored was")


@cache
def _state_outside_workers() -> ProcessState:
    import_module("torch._dynamo")  # it wraps functions of torch when it is loaded, which the first training does

    return ProcessState()


@cache
def _choose_attention() -> None:
    """Have torch choose the order of its attention kernels, which it does at the first call on CUDA."""
    import torch

    probe = torch.empty(1, 1, 16, 16, device="cuda")
    torch._fused_sdp_choice(probe, probe, probe)


@contextmanager
def reset_random(seed: int) -> Iterator[None]:
    """Seed the random numbers of Python, numpy and torch; give them their state back at the end."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    python = random.getstate()
    arrays = None if numpy is None else numpy.random.get_state()
    tensors = None if torch is None else torch.get_rng_state()
    random.seed(seed)
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    if torch is not None:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None and arrays is not None:
            numpy.random.set_state(arrays)
        if torch is not None and tensors is not None:
            torch.set_rng_state(tensors)


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with so many threads while the context is open."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
