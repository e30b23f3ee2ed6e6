"""Exceptions that a command turns into one sentence and an exit code.

An error text states the rule, the given value, its place and the remedy.
"""

from typing import ClassVar


class AblateError(Exception):
    """An error that the user can act on; `exit_code` is the command's exit code."""

    exit_code: ClassVar[int] = 1


class SpecError(AblateError):
    """A spec, path, rule or grid that has no meaning (exit code 2)."""

    exit_code = 2


class NotFoundError(AblateError):
    """A campaign, grid, trial or file that is not there (exit code 3)."""

    exit_code = 3


class EnvironmentProblem(AblateError):
    """The machine lacks something: disk space, a permission, a package, a scheduler (exit code 5)."""

    exit_code = 5


class StoreError(AblateError):
    """Stored data that cannot be read as it is: newer version, altered bytes (exit code 6)."""

    exit_code = 6
