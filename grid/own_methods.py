"""Optional methods of experiments, which a user may have written: one that fails is told in one sentence."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from traceback import extract_tb
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ablate.grid.errors import AblateError, SpecError
from ablate.grid.values import show


def ask(method: Callable[..., Any], kind: Any, returns: str, *arguments: Any) -> Any:
    """Return `method(*arguments)`, which is of the type `kind`, in words `returns`.

    Raises SpecError with the place in the method if it returns something else, or raises. Exceptions of the methods of
    `ablate` itself pass.
    """
    name, code = method.__qualname__, getattr(method, "__code__", None)
    try:
        answer = method(*arguments)
    except (AblateError, MemoryError):
        raise
    except Exception as error:
        if method.__module__.partition(".")[0] == "ablate":
            raise
        lines = [each.lineno for each in extract_tb(error.__traceback__) if code and each.filename == code.co_filename]
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise SpecError(f"{name}() raised {told}{_place(code, lines)}; it returns {returns}") from error
    try:
        return _adapter(kind).validate_python(answer)
    except ValidationError as error:
        raise SpecError(f"{name}() returned {show(answer)}{_place(code, [])}; it returns {returns}") from error


def _place(code: Any, lines: list[int | None]) -> str:
    """Return the line that raised, or the first of a function, as ` (own.py:7)`; nothing for other callables."""
    return f" ({Path(code.co_filename).name}:{lines[-1] if lines else code.co_firstlineno})" if code else ""


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
