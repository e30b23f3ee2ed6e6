"""Functions of torch and of this package that training calls: found again if a trial replaces one.

A namespace (a module or a class) is unchanged if it has the same objects in the same order. That takes one pass over
its values, half a millisecond for all 10,000: most of the time goes into reading them from memory.
"""

import builtins
import sys
from collections.abc import Collection, Iterator, Mapping
from operator import is_
from types import ModuleType
from typing import Any, Final, NamedTuple, final

_MODULES: Final = frozenset(
    {
        *(
            "builtins",
            "math",
            "torch",
            "torch._tensor",
            "torch._VF",
            "torch._C._fft",
            "torch._C._linalg",
            "torch._C._nn",
        ),
        *("torch._C._special", "torch.functional", "torch.fft", "torch.linalg", "torch.nn", "torch.random"),
        *("torch.special", "torch.nn.functional", "torch.nn.init", "torch.nn.parameter", "torch.nn.attention"),
        *("torch.optim.adam", "torch.optim.adamw", "torch.optim.optimizer", "torch.amp.autocast_mode"),
        *("torch.autograd", "torch.autograd.function", "torch.autograd.graph", "torch.autograd.grad_mode"),
        *(
            f"torch.nn.modules.{name}"
            for name in ("activation", "container", "dropout", "linear", "loss", "module", "normalization", "sparse")
        ),
    }
)
_PACKAGES: Final = ("ablate.variants.", "ablate.training.", "ablate.runners.processes.")
_ABSENT: Final = object()
_HEAP_TYPE: Final = 1 << 9
_BUILTINS: Final = frozenset(vars(builtins))


class _Namespace(NamedTuple):
    """A module or a class, its attributes as they are now, and as they were."""

    owner: Any
    now: Mapping[str, Any]
    names: list[str]
    values: list[Any]

    def is_unchanged(self) -> bool:
        return len(self.now) == len(self.values) and all(map(is_, self.values, self.now.values()))

    def changed(self) -> Iterator[tuple[str, Any]]:
        """Yield the full names of functions that differ, with what they were before."""
        before = dict(zip(self.names, self.values, strict=True))
        for name in {**before, **self.now}:
            was, present = before.get(name, _ABSENT), self.now.get(name, _ABSENT)
            if was is present or self._is_wrapped(name, was, present):
                continue
            if _is_function(was) or (_is_function(present) and self._counts(name, was)):
                yield name, was

    def _counts(self, name: str, was: Any) -> bool:
        """Return False for a new name, which no code there uses, unless it hides a function of a base or a builtin."""
        if was is not _ABSENT or not isinstance(self.owner, type):
            return was is not _ABSENT or name in _BUILTINS
        return name.startswith("__") or any(name in vars(base) for base in self.owner.__mro__[1:])

    def _is_wrapped(self, name: str, was: Any, now: Any) -> bool:
        """Return True for a wrapper that torch itself puts around a function of an optimiser when it is first used."""
        optim = sys.modules.get("torch.optim")
        if optim is None or not (isinstance(self.owner, type) and issubclass(self.owner, optim.Optimizer)):
            return False
        file = getattr(getattr(now, "__code__", None), "co_filename", "")
        if not file.startswith(sys.modules["torch"].__path__[0]):
            return False
        bases = self.owner.__mro__[1:] if was is _ABSENT else ()
        before = next((vars(each)[name] for each in bases if name in vars(each)), was)
        return _innermost(now) is _innermost(before)

    def full_name(self, name: str) -> str:
        owner = self.owner
        return (
            f"{owner.__name__ if isinstance(owner, ModuleType) else f'{owner.__module__}.{owner.__qualname__}'}.{name}"
        )


@final
class CoreFunctions:
    """The functions of all loaded modules that training uses, as they were when each module was first seen."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._loaded = 0
        self._spaces: list[_Namespace] = []
        self.changed()

    def changed(self) -> list[str]:
        """Return the names of functions that differ; add the modules loaded since, as they are."""
        differing = []
        for place, space in enumerate(self._spaces):
            if not space.is_unchanged():
                names = [space.full_name(name) for name, _ in space.changed()]
                differing += names
                if not names:  # a submodule was loaded, or a value that is no function was set
                    self._spaces[place] = _namespace(space.owner)
        if len(sys.modules) != self._loaded:
            self._extend()
        return differing

    def restore(self, leave: Collection[str] = ()) -> None:
        """Put back the functions that differ, except those named in `leave`."""
        for space in self._spaces:
            for name, was in () if space.is_unchanged() else [*space.changed()]:
                if space.full_name(name) not in leave:
                    delattr(space.owner, name) if was is _ABSENT else setattr(space.owner, name, was)

    def retake(self) -> None:
        """Take the functions as they are now."""
        self._spaces = [each if each.is_unchanged() else _namespace(each.owner) for each in self._spaces]

    def _extend(self) -> None:
        self._loaded = len(sys.modules)
        for name, module in sys.modules.copy().items():  # other threads import; a list of items is not made at once
            if name not in self._seen and (name in _MODULES or name.startswith(_PACKAGES)):
                if getattr(getattr(module, "__spec__", None), "_initializing", False):  # half imported
                    self._loaded = 0
                    continue
                self._seen.add(name)
                self._spaces += map(_namespace, (module, *_classes(module)))


def _classes(module: ModuleType) -> list[type]:
    """Return the classes that a module defines and that can be changed, as those of C cannot."""
    classes = [value for value in vars(module).copy().values() if isinstance(value, type)]
    return [each for each in classes if each.__module__ == module.__name__ and each.__flags__ & _HEAP_TYPE]


def _namespace(owner: Any) -> _Namespace:
    now = vars(owner)
    kept = now.copy()
    return _Namespace(owner, now, list(kept), list(kept.values()))


def _innermost(function: Any) -> Any:
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        function = inner
    return function


def _is_function(value: Any) -> bool:
    return isinstance(value, staticmethod | classmethod | property) or callable(value)
