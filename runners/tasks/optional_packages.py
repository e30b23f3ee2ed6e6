"""Packages that some choices need and the others do without."""

from importlib import import_module
from typing import Any

from grid.errors import EnvironmentProblem


def require_package(package: str, *, by: str, extra: str) -> Any:
    """The module `package`, which the optional dependencies `extra` bring.

    Raises:
        EnvironmentProblem: it is not installed.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise
        raise EnvironmentProblem(f'{by} needs the package {package}; pip install "ablate[{extra}]"') from error
