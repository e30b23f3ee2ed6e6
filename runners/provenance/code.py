"""The code of a trial: a version for each class of the package, a hash for each part of the user's code.

A class of the package states its `version`, which is raised when an edit changes the numbers of trials; a golden test
tells when. In a user's file, only code that the classes of the trial reach counts. So editing a formula, or a helper or
constant that it uses, makes other code; editing seeds or axes of a grid does not. Comments, docstrings, formatting and
files that only re-export never count. An installed package that defines a class counts by the file of the class.

Loading a spec file can also change a trial: by statements that change more than the file's own variables
(`Softmax.forward = mine`), by data files and by environment variables. These count for every trial of the file, as
"spec", "file NAME" and "$NAME".
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from importlib.util import decode_source
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TypeGuard, final

from ablate.grid import Experiment, Grid, Spec
from ablate.grid.key import canonical_json
from ablate.grid.spec import field_names
from ablate.runners.provenance.loading import named_files, read_by
from ablate.runners.provenance.origin import is_installed, is_project_module
from ablate.runners.provenance.source import (
    acting_names,
    digest,
    effects,
    hash_text,
    imported_modules,
    names_in,
    relevant,
    statements,
)
from ablate.store.files.code_versions import differing
from ablate.store.files.trial_state import AttemptState, TrialState
from ablate.store.state import State

SOURCE = "__ablate_source__"
"""Module attribute with the text of a spec file as it was loaded; the file may be edited later."""


def spec_module_name(path: Path | str) -> str:
    """Derive the module name of a spec file, unique per path."""
    path = Path(path).resolve()
    stem = re.sub(r"\W", "_", path.stem)
    return f"ablate_spec_{stem}_{blake2b(str(path).encode(), digest_size=6).hexdigest()}"


def ran_other_code(state: TrialState, sources: Mapping[str, str]) -> bool:
    """Return True if a trial finished or failed by an error in code other than `sources`, or in unknown code."""
    ended = state.result
    if state.state == State.FAILED and state.ended is not None and (state.ended.end or {}).get("reason") == "error":
        ended = state.ended
    return ended is not None and not made_by(state, ended.attempt, sources)


def made_by(state: TrialState, attempt: int, sources: Mapping[str, str]) -> bool:
    """Return True if `attempt` and those that it continued are known to have run the code `sources`."""
    return changed_since(state, attempt, sources) == []


def changed_since(state: TrialState, attempt: int, sources: Mapping[str, str]) -> list[str] | None:
    """Name the sources in which `attempt` and those that it continued differ from `sources`; None if unknown."""
    names: set[str] = set()
    for each in lineage(state, attempt):
        recorded = each and each.start.get("sources")
        if recorded is None:
            return None
        names.update(differing(recorded, sources, each and each.start.get("path")))
    return sorted(names)


def lineage(state: TrialState, attempt: int) -> Iterator[AttemptState | None]:
    """Yield `attempt`, the one that it resumed from, and so on; None for one without a record, which is the last."""
    earlier = {each.attempt: each for each in state.attempts}
    following: int | None = attempt
    while following is not None:
        record = earlier.pop(following, None)  # popped: a damaged record must not cause a loop
        yield record
        following = record and (record.start.get("resumed_from") or {}).get("attempt")


@final
class Codes:
    """The sources of trials; `files` are the spec files, loaded before. Later edits do not change them."""

    def __init__(self, files: Iterable[Path] = ()) -> None:
        self._loading = sources_of_loading(files)
        self._found: dict[frozenset[tuple[type[Spec], tuple[tuple[str, str], ...]]], dict[str, str]] = {}

    def sources(self, trial: Spec) -> dict[str, str]:
        """List every source of `trial`: versions of the package's classes, links and all paths; hashes of the rest."""
        used = frozenset((type(spec), tuple(spec.other_versions().items())) for spec in specs(trial))
        if used not in self._found:
            versions = {name: version for _, others in used for name, version in others}
            self._found[used] = {**self._of_classes(frozenset(cls for cls, _ in used)), **versions, **self._loading}
        other = trial.other_code() if isinstance(trial, Experiment) else {}
        return {**self._found[used], **other}

    def _of_classes(self, classes: frozenset[type[Spec]]) -> dict[str, str]:
        sources: dict[str, str] = {}
        for cls in sorted(classes, key=lambda cls: (cls.__module__, cls.__qualname__)):
            parents = [each for each in cls.__mro__ if each.__module__.partition(".")[0] not in _PLAIN]
            versions = [each for each in parents if _is_projects(each)]
            sources |= {each.code_name(): str(each.version) for each in versions[:1]}  # it inherits that of its parents
            for each in parents:
                if each not in versions:
                    self._add(each, sources)
        return sources

    def _add(self, cls: type, sources: dict[str, str]) -> None:
        """Add a class that the package does not define."""
        module = sys.modules.get(cls.__module__)
        if module is None or not has_source(module):
            sources[f"class {cls.__qualname__}"] = hash_text("\n".join(_list_methods(cls)))
        elif _is_users(module):
            self._add_users(cls, module, sources)
        else:
            sources[module.__name__] = _of_file(Path(_file(module)))

    def _add_users(self, cls: type, module: ModuleType, sources: dict[str, str]) -> None:
        """Add the part of a user's `module` that `cls` reaches, and its imports except installed packages."""
        part = relevant(statements(source_text(module)), cls.__qualname__.partition(".")[0], _grids_in(module))
        sources[f"class {cls.__qualname__}"] = digest(part)
        sources |= _versions_in(part, module)
        waiting = list(imported_modules(part, module))
        while waiting:
            other = waiting.pop()
            if other.__name__ not in sources and _is_users(other) and has_source(other):
                whole = statements(source_text(other))
                sources[other.__name__] = digest(whole)
                sources |= _versions_in(whole, other)
                waiting.extend(imported_modules(whole, other))


def _versions_in(part: Iterable[ast.stmt], module: ModuleType) -> dict[str, str]:
    """Return the versions of the package's classes that a part of a user's `module` names."""
    used = [vars(module).get(name) for name in names_in(part)]
    return {each.code_name(): str(each.version) for each in used if isinstance(each, type) and _is_projects(each)}


def sources_of_loading(files: Iterable[Path]) -> dict[str, str]:
    """Hash what the loaded spec files, and the modules that they import, did beyond their own variables."""
    digests: set[str] = set()
    readers, named = set[str](), set[Path]()
    for module in filter(None, (sys.modules.get(spec_module_name(file)) for file in files)):
        used_wholly, seen, waiting = set[str](), set[str](), [(module, False)]
        while waiting:
            each, is_used = waiting.pop()
            if each.__name__ in (used_wholly if is_used else seen) or not (_is_users(each) and has_source(each)):
                continue
            seen.add(each.__name__)
            if is_used:
                used_wholly.add(each.__name__)
            readers.add(_file(each))
            text = statements(source_text(each))
            grids = _grids_in(each)
            named |= {*named_files(_file(each), text, grids)}
            part = text if is_used else effects(text, grids, _acting_imports(text, each, set()))
            if part:
                digests.add(digest(part))  # not its name: two spec files may do the same
            used = {other.__name__ for other in imported_modules(part, each)}
            waiting += [(other, other.__name__ in used) for other in imported_modules(text, each)]
    spec = {"spec": hash_text(canonical_json(sorted(digests)))} if digests else {}
    return {**spec, **read_by(readers, named)}


def _acting_imports(body: Iterable[ast.stmt], importer: ModuleType, seen: set[str]) -> set[str]:
    """Name what a user's file imports from other user files that may change anything beyond its own variables."""
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for other in imported_modules([statement], importer):
                if other.__name__ not in seen and _is_users(other) and has_source(other):
                    text = statements(source_text(other))
                    acting = acting_names(text, _acting_imports(text, other, {*seen, other.__name__}))
                    for each in statement.names:
                        whole = isinstance(statement, ast.Import) or f".{other.__name__}".endswith(f".{each.name}")
                        if (whole and acting) or each.name in acting:
                            names.add(each.asname or each.name.partition(".")[0])
    return names


def _grids_in(module: ModuleType) -> set[str]:
    return {name for name, value in vars(module).items() if isinstance(value, Grid)}


def specs(value: object) -> Iterator[Spec]:
    """Yield every spec inside `value`, including `value`."""
    if isinstance(value, Spec):
        yield value
        for name in field_names(type(value)):
            yield from specs(value.__dict__[name])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from specs(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from specs(each)


_PLAIN = frozenset({"abc", "builtins", "pydantic", "typing"})


def _is_projects(cls: type) -> TypeGuard[type[Spec]]:
    module = sys.modules.get(cls.__module__)
    return module is not None and is_project_module(module) and issubclass(cls, Spec)


def _file(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or ""


def _is_users(module: ModuleType) -> bool:
    return SOURCE in vars(module) or not (is_project_module(module) or is_installed(_file(module)))


def has_source(module: ModuleType) -> bool:
    """Return True if the Python text of `module` is known."""
    return SOURCE in vars(module) or (_file(module).endswith(".py") and Path(_file(module)).is_file())


def source_text(module: ModuleType) -> str:
    """Return the source text of `module`."""
    kept = vars(module).get(SOURCE)
    return decode_source(Path(_file(module)).read_bytes()) if kept is None else str(kept)


def _of_file(file: Path) -> str:
    status = file.stat()
    return _of_file_as_of(file, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4096)  # parsing is slow
def _of_file_as_of(file: Path, mtime_ns: int, size: int) -> str:
    del mtime_ns, size  # an edited file has another cache key
    return digest(statements(decode_source(file.read_bytes())))


def _list_methods(cls: type) -> Iterator[str]:
    """Yield the bytecode of the methods of a class without a source file."""
    for name, value in sorted(vars(cls).items()):
        if isinstance(value, FunctionType):
            yield f"{name} {_instructions(value.__code__)}"


def _instructions(code: CodeType) -> str:
    inner = [_instructions(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {inner}"
