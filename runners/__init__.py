"""Running it: campaigns of any experiment, machines and the command `ablate`.

Each name is loaded on first use, so that the command answers `--help` without loading torch.
"""

from importlib import import_module
from typing import Any

import lazy_loader

_own, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__ and not name.startswith("_"):
        training = import_module("ablate.training")  # spec files of releases before 0.3 import its names from here
        if name in training.__all__:
            return getattr(training, name)
    return _own(name)
