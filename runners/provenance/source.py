"""Parses Python source for hashing: ignores comments, docstrings and layout, and selects relevant statements."""

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from importlib.util import resolve_name
from types import ModuleType

_SAYS_NOTHING = frozenset({"ctx", "kind", "type_comment", "type_ignores"})


def statements(text: str) -> list[ast.stmt]:
    """Parse top-level statements, one per imported name; invalid Python counts as raw text."""
    try:
        return [each for statement in ast.parse(text).body for each in _split(statement)]
    except (SyntaxError, ValueError):  # a file being edited since its import
        return [ast.Expr(ast.Constant(text.encode("utf-8", "surrogatepass")))]


def _split(statement: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(statement, ast.Import):
        yield from (ast.Import([name]) for name in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        yield from (ast.ImportFrom(statement.module, [name], statement.level) for name in statement.names)
    else:
        yield statement


def digest(found: Sequence[ast.stmt]) -> str:
    """Hash statements to 32 hexadecimal digits, equal in every version of Python."""
    return hash_text(_canonical(list(found)))


def hash_text(text: str) -> str:
    """Hash `text` with blake2b-128, as 32 hexadecimal digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _canonical(node: object) -> str:
    """Dump an AST without docstrings and without empty fields, which differ between Python versions."""
    if isinstance(node, list):
        return f"[{','.join(_canonical(each) for each in node if not _is_text(each))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in _SAYS_NOTHING)
    told = (f"{name}={_canonical(value)}" for name, value in fields if value is not None and value != [])
    return f"{type(node).__name__}({','.join(told)})"


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def relevant(found: Sequence[ast.stmt], wanted: str, left_out: Iterable[str]) -> list[ast.stmt]:
    """Select the statements that the definition of `wanted` uses, directly or indirectly, in order.

    Statements that do more than bind names may change anything, so they always count, with the names they use.
    Statements that only bind names in `left_out` never count. If nothing binds `wanted`, all others count.
    """
    left_out = frozenset(left_out)
    bound = [_bound(statement) for statement in found]
    kept = {at for at, names in enumerate(bound) if names is None}
    if not any(wanted in names for names in bound if names):
        return [statement for statement, names in zip(found, bound, strict=True) if not names or names - left_out]
    return _reach(found, kept, {wanted}, left_out)


def effects(found: Sequence[ast.stmt], left_out: Iterable[str]) -> list[ast.stmt]:
    """Select the statements that may change anything beyond this file, and what they use, in order.

    These are statements that do more than bind names, such as `Softmax.forward = mine`, and calls of functions of
    this file that contain such statements. Names in `left_out` and `if __name__ == "__main__"` never count.
    """
    acting = {each.name for each in found if isinstance(each, ast.FunctionDef) and _acts(each)}
    kept = {
        at
        for at, statement in enumerate(found)
        if not _is_main(statement)
        and (
            _bound(statement) is None
            or (
                isinstance(statement, ast.Assign | ast.AnnAssign)
                and not (_bound(statement) or frozenset()) & frozenset(left_out)
                and acting & _names_called(statement)
            )
        )
    }
    return _reach(found, kept, set(), frozenset(left_out))


def _reach(found: Sequence[ast.stmt], kept: set[int], wanted: set[str], left_out: frozenset[str]) -> list[ast.stmt]:
    """Add to the statements `kept` the definitions of `wanted` and of every name that they use."""
    bound = [_bound(statement) for statement in found]
    waiting = [*wanted, *(name for at in kept for name in _used(found[at]))]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name in left_out:
            continue
        seen.add(name)
        for at, names in enumerate(bound):
            if names and name in names and at not in kept:
                kept.add(at)
                waiting.extend(_used(found[at]))
    return [found[at] for at in sorted(kept)]


def _acts(function: ast.FunctionDef) -> bool:
    """Return True if `function` may change anything but its own variables."""
    inside = [node for statement in function.body for node in ast.walk(statement)]
    return any(
        isinstance(node, ast.Global | ast.Delete | ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        or (isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store))
        for node in inside
    )


def _names_called(statement: ast.stmt) -> set[str]:
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    return {func.id for func in calls if isinstance(func, ast.Name)}


def _is_main(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in _used(ast.Expr(statement.test))


def _bound(statement: ast.stmt) -> frozenset[str] | None:
    """Return the names that `statement` binds; None if it does more."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return frozenset({statement.name})
    if isinstance(statement, ast.Import | ast.ImportFrom):
        names = frozenset(each.asname or each.name.partition(".")[0] for each in statement.names)
        return None if "*" in names else names
    if isinstance(statement, ast.AnnAssign):
        return _targets([statement.target])
    if isinstance(statement, ast.Assign):
        return _targets(statement.targets)
    return frozenset() if _is_text(statement) else None


def _targets(targets: Iterable[ast.expr]) -> frozenset[str] | None:
    """Return the assigned names; None if a target is not a name."""
    names: set[str] = set()
    for target in targets:
        inner = _targets(target.elts) if isinstance(target, ast.Tuple | ast.List) else None
        if isinstance(target, ast.Name):
            names.add(target.id)
        elif inner is None:
            return None
        else:
            names |= inner
    return frozenset(names)


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def imported_modules(found: Iterable[ast.stmt], importer: ModuleType) -> Iterator[ModuleType]:
    """Yield the modules that `importer` imports anywhere, and the modules that define the imported names."""
    for statement in found:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                yield from _find_loaded(*(each.name for each in node.names))
            elif isinstance(node, ast.ImportFrom):
                home = _absolute(node, importer)
                for each in node.names:
                    thing = getattr(sys.modules.get(home), each.name, None)
                    yield from _find_loaded(home, f"{home}.{each.name}", str(getattr(thing, "__module__", "")))


def _find_loaded(*names: str) -> Iterator[ModuleType]:
    return (module for name in names if (module := sys.modules.get(name)) is not None)


def _absolute(node: ast.ImportFrom, importer: ModuleType) -> str:
    package = getattr(importer, "__package__", None) or importer.__name__
    return resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
