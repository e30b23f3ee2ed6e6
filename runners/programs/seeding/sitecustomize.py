"""Seeds a Python program by its trial. Every interpreter that the program starts imports it, from PYTHONPATH.
A program may use another version of Python, and waits for this file; so it has no types, and imports little.

Random numbers of Python, numpy and torch begin from the seed. Later calls of their seed functions get the seed of the
trial added, times an odd number. So seeds of a program stay apart, and with seed 0 they are as the program gives them.
"""

# mypy: ignore-errors

import _thread
import importlib.machinery
import importlib.util
import os
import random
import sys
from functools import wraps

_SEED = int(os.environ.get("ABLATE_SEED", "0"))
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
_SPREAD = 0x9E3779B97F4A7C15
_at_work = _thread._local()  # per thread: a seed function that calls others


def _combine(seed, bits):
    if isinstance(seed, (str, bytes, bytearray)):
        return seed + (str(_SEED) if isinstance(seed, str) else str(_SEED).encode()) if _SEED else seed
    if hasattr(seed, "__index__"):
        return (int(seed) + _SEED * _SPREAD) % 2**bits if _SEED else seed
    if isinstance(seed, (list, tuple)) or getattr(seed, "ndim", 0):
        return [*seed, _SEED % 2**32] if _SEED else seed
    return seed  # None asks for a seed that nobody knows


def _wrap(module, name, bits):
    original = getattr(module, name, None)
    if original is None:
        return

    @wraps(original)
    def call(*seeds, **named):
        if getattr(_at_work, "inside", False):
            return original(*seeds, **named)
        _at_work.inside = True
        try:
            return original(
                *(_combine(each, bits) for each in seeds),
                **{key: _combine(each, bits) if key in ("seed", "a") else each for key, each in named.items()},
            )
        finally:
            _at_work.inside = False

    setattr(module, name, call)


def _numpy(random_of_numpy):
    random_of_numpy.seed(_SEED % 2**32)
    for name in ("seed", "default_rng"):
        _wrap(random_of_numpy, name, 32)


def _torch(torch):
    torch.manual_seed(_SEED % 2**63)
    for module in (torch.cuda, torch.cuda.random):
        for name in ("manual_seed", "manual_seed_all"):
            _wrap(module, name, 63)
    _wrap(torch.random, "manual_seed", 63)
    torch.manual_seed = torch.random.manual_seed


_SEEDERS = {"numpy.random": _numpy, "torch": _torch}


class _SeedingFinder:
    """Seeds a package once it is loaded."""

    def find_spec(self, name, path=None, target=None):
        seed = _SEEDERS.get(name)
        others = [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")] if seed else []
        spec = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return None
        load = spec.loader.exec_module

        def load_and_seed(module):
            load(module)
            seed(module)

        spec.loader.exec_module = load_and_seed
        return spec


def _run_own():
    """Run the sitecustomize that the interpreter would have run."""
    others = [each for each in sys.path if os.path.abspath(each) != _HERE]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["sitecustomize"])


random.seed(_SEED)
_wrap(random, "seed", 64)
sys.meta_path.insert(0, _SeedingFinder())
_run_own()
