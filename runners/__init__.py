"""Running it: trials, tasks, training, campaigns, machines and the command `ablate`.

What a spec file needs is imported from here; each name is loaded when it is first used, so that the command answers
`--help` without loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runners.run import RunOptions as RunOptions
    from runners.run import RunResult as RunResult
    from runners.run import run_campaign as run_campaign

_HOMES = {
    "RunOptions": "runners.run",
    "RunResult": "runners.run",
    "run_campaign": "runners.run",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'runners' has no attribute {name!r}; it has {sorted(_HOMES)}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
