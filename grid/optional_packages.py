"""Optional packages that only some choices need."""

from importlib import import_module
from typing import Any

from ablate.grid.errors import EnvironmentProblem


def require_package(package: str, *, by: str, extra: str) -> Any:
    """Import the module `package` of the optional dependencies `extra`; EnvironmentProblem if it is not installed."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise
        raise EnvironmentProblem(f'{by} needs the package {package}; pip install "ablate[{extra}]"') from error
