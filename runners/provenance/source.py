"""Parses Python source for hashing: ignores comments, docstrings and layout, and selects relevant statements."""

import ast
import sys
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from hashlib import blake2b
from importlib.util import resolve_name
from types import ModuleType

_SAYS_NOTHING = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


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


def digest(body: Sequence[ast.stmt]) -> str:
    """Hash statements to 32 hexadecimal digits, equal in every version of Python."""
    return hash_text(_canonical(list(body)))


def hash_text(text: str) -> str:
    """Hash `text` with blake2b-128, as 32 hexadecimal digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _canonical(node: object) -> str:
    """Dump an AST without docstrings and without empty fields, which differ between Python versions.

    An import from `ablate.grid` counts as one from `grid`, as it was called in release 0.1.
    """
    if isinstance(node, list):
        return f"[{','.join(_canonical(each) for each in node if not _is_text(each))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in _SAYS_NOTHING)
    if isinstance(node, ast.ImportFrom | ast.alias):
        fields = ((name, each.removeprefix("ablate.") if isinstance(each, str) else each) for name, each in fields)
    told = (f"{name}={_canonical(value)}" for name, value in fields if value is not None and value != [])
    return f"{type(node).__name__}({','.join(told)})"


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def relevant(body: Sequence[ast.stmt], wanted: str, left_out: Iterable[str]) -> list[ast.stmt]:
    """Select the statements that the definition of `wanted` uses, directly or indirectly, in order.

    Statements that do more than bind names may change anything, so they always count, with the names they use.
    Statements that only bind names in `left_out` never count. If nothing binds `wanted`, all others count.
    """
    left_out = frozenset(left_out)
    bound = [_bound(statement) for statement in body]
    kept = {at for at, names in enumerate(bound) if names is None}
    if not any(wanted in names for names in bound if names):
        return [statement for statement, names in zip(body, bound, strict=True) if not names or names - left_out]
    return _reach(body, kept, {wanted}, left_out)


def effects(body: Sequence[ast.stmt], left_out: Iterable[str], acting: Iterable[str] = ()) -> list[ast.stmt]:
    """Select the statements that may change anything beyond this file, and what they use, in order.

    These are statements that change more than the file's own variables, such as `Softmax.forward = mine`. Definitions
    and assignments count if they call `setattr` or its like, or use a function or class of `acting` or `acting_names`.
    Bodies of functions do not, since they run later. Names in `left_out` and `if __name__ == "__main__"` never count.
    """
    acting, left_out = acting_names(body, acting), frozenset(left_out)
    own = _made_in(ast.Module(list(body), [])) | ({"print"} - {name for each in body for name in _bound(each) or ()})
    kept = {
        at
        for at, statement in enumerate(body)
        if not _is_main(statement)
        and (
            _reaches_out(statement, own, acting)
            if (bound := _bound(statement)) is None
            else not bound & left_out and _acts(_run_at_once(statement), frozenset(), acting)
        )
    }
    return _reach(body, kept, set(), left_out)


def acting_names(body: Sequence[ast.stmt], known: Iterable[str] = ()) -> set[str]:
    """Name the functions and classes of this file that may change anything but their own variables.

    Functions that use one of them or of `known` do so, too.
    """
    acting, before = set(known), -1
    while before != len(acting):
        before = len(acting)
        for statement in body:
            if isinstance(statement, _FUNCTION):
                acts = _acts(statement.body, _made_in(statement), acting, calls=True)
            elif isinstance(statement, ast.ClassDef):
                methods = [each for each in statement.body if isinstance(each, _FUNCTION)]
                acts = any(_acts(each.body, _locals(each), ()) for each in methods)
            else:
                lambdas = [each for each in ast.walk(statement) if isinstance(each, ast.Lambda)]
                acts = isinstance(statement, ast.Assign) and _acts(lambdas, frozenset(), acting)
            acting |= (acts and _bound(statement)) or set()
    return acting


def uses_of(body: Sequence[ast.stmt], reported: Container[str], left_out: Iterable[str]) -> list[ast.stmt]:
    """Select the statements that run at once and use a package outside `reported`, and what they use, in order.

    Names bound to what such a package returned count as its uses.
    """
    left_out = frozenset(left_out)
    imports = [each for each in body if isinstance(each, ast.Import | ast.ImportFrom)]
    names: set[str] = set()
    for each in imports:
        module = each.names[0].name if isinstance(each, ast.Import) else each.module or ""
        if module.partition(".")[0] not in reported:
            names |= _bound(each) or frozenset()
    before = -1
    while before != len(names):
        before = len(names)
        names |= {name for each in body if names & _used(each) for name in _bound(each) or ()}
    kept = {
        at
        for at, each in enumerate(body)
        if not isinstance(each, _FUNCTION) and names & _used(each) and not (_bound(each) or frozenset()) & left_out
    }
    return _reach(body, kept, set(), left_out)


def texts_in(body: Iterable[ast.stmt]) -> list[str]:
    """List the string constants of statements, with the constant parts of f-strings."""
    nodes = (node for statement in body for node in ast.walk(statement))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _reach(body: Sequence[ast.stmt], kept: set[int], wanted: set[str], left_out: frozenset[str]) -> list[ast.stmt]:
    """Add to the statements `kept` the definitions of `wanted` and of every name that they use."""
    bound = [_bound(statement) for statement in body]
    waiting = [*wanted, *(name for at in kept for name in _used(body[at]))]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name in left_out:
            continue
        seen.add(name)
        for at, names in enumerate(bound):
            if names and name in names and at not in kept:
                kept.add(at)
                waiting.extend(_used(body[at]))
    return [body[at] for at in sorted(kept)]


_SETTERS = frozenset(
    {"setattr", "delattr", "__setattr__", "__delattr__", "__dict__", "vars", "globals", "exec", "eval", "patch"}
)
"""Names by which code changes what belongs to others; `patch` is that of `unittest.mock`."""


def _acts(parts: Iterable[ast.AST], own: Set[str], acting: Container[str], *, calls: bool = False) -> bool:
    """Return True if code may change anything but its variables `own`; with `calls`, by a call that is a statement."""
    nodes = [node for part in parts for node in ast.walk(part)]
    on_own = {node.func for node in nodes if isinstance(node, ast.Call) and node.args and _root(node.args[0]) in own}
    return any(
        isinstance(node, ast.Global)
        or (calls and isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _root(node.value) not in own)
        or (isinstance(node, ast.Name) and node.id in acting)
        or (isinstance(node, ast.Name) and node.id in _SETTERS and node not in on_own)
        or (isinstance(node, ast.Attribute) and node.attr in _SETTERS and node not in on_own)
        or (
            isinstance(node, ast.Attribute | ast.Subscript)
            and not isinstance(node.ctx, ast.Load)
            and _root(node) not in own
        )
        for node in nodes
    )


def _reaches_out(statement: ast.stmt, own: Set[str], acting: Container[str]) -> bool:
    """Return True if a statement such as a loop may change more than the variables of its file; `own` are its lists."""
    enters = (ast.With, ast.AsyncWith)
    star = isinstance(statement, ast.ImportFrom)
    return (
        star
        or any(isinstance(node, enters) for node in ast.walk(statement))
        or _acts([statement], own, acting, calls=True)
    )


def _run_at_once(statement: ast.stmt) -> list[ast.AST]:
    """List the parts of a statement that run when it is reached, without bodies of functions."""
    if isinstance(statement, _FUNCTION):
        return [*statement.decorator_list, statement.args]
    if isinstance(statement, ast.ClassDef):
        inside = [part for each in statement.body for part in _run_at_once(each)]
        return [*statement.decorator_list, *statement.bases, *statement.keywords, *inside]
    return [] if isinstance(statement, ast.Import | ast.ImportFrom) else [statement]


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Name the parameters and variables of a function."""
    nodes = list(ast.walk(function))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return names | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _made_in(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Module) -> set[str]:
    """Name the variables that a function or file only ever assigns new containers to."""
    made = {ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp}
    targets: set[int] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and type(node.value) in made:
            targets.update(map(id, node.targets))
        elif isinstance(node, ast.AnnAssign) and type(node.value) in made:
            targets.add(id(node.target))
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    fresh = {node.id for node in names if id(node) in targets}
    return fresh - {node.id for node in names if id(node) not in targets}


def _root(node: ast.expr) -> str:
    """Return the name that an expression such as `a.b[0].c()` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


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


def names_in(body: Iterable[ast.stmt]) -> set[str]:
    """Name what statements use."""
    return {name for statement in body for name in _used(statement)}


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def imported_modules(body: Iterable[ast.stmt], importer: ModuleType) -> Iterator[ModuleType]:
    """Yield the modules that `importer` imports anywhere, and the modules that define the imported names."""
    for statement in body:
        for node in ast.walk(statement):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                package = getattr(importer, "__package__", None) or importer.__name__
                home = (
                    resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
                )
                for each in node.names:
                    thing = getattr(sys.modules.get(home), each.name, None)
                    names += [home, f"{home}.{each.name}", str(getattr(thing, "__module__", ""))]
            yield from (sys.modules[name] for name in names if sys.modules.get(name) is not None)
