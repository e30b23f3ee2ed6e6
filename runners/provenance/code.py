"""Hashes the code of a trial: one hash per source that can change its numbers.

The core is the code of every trial. The modules that define the classes of a trial's specs count too. In a user's file,
only code that these classes reach counts. So editing a formula, or a helper or constant that it uses, makes other code;
editing seeds or axes of a grid does not. Comments, docstrings, formatting and files that only re-export never count.

Loading a spec file can also change a trial: by statements that do more than bind names (`Softmax.forward = mine`), by
data files and by environment variables. These count for every trial of the file, as "spec", "file NAME" and "$NAME".
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from importlib.util import decode_source
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import final

from grid import Grid, Spec
from grid.key import canonical_json
from grid.spec import field_names
from runners.provenance.loading import named_files, read_by
from runners.provenance.origin import PROJECT, is_installed, package_of
from runners.provenance.source import acting_names, digest, effects, hash_text, imported_modules, relevant, statements
from store.files.code_aliases import current_sources
from store.files.trial_status import AttemptState, TrialState

CORE = (
    "variants/*.py",
    "variants/model/*.py",
    "variants/stages/*.py",
    "variants/paths/*.py",
    "runners/tasks/task.py",
    "runners/tasks/counter_rng.py",
    "runners/probes/probe.py",
    "runners/evaluations/evaluation.py",
    "runners/training/compilation.py",
    "runners/training/deterministic.py",
    "runners/training/process_group.py",
    "runners/training/flat_parameters.py",
    "runners/optimisers/optimiser.py",
    "runners/optimisers/training_config.py",
    "runners/optimisers/schedules.py",
    "runners/training/loop.py",
    "runners/trial.py",
)
"""Files that every trial runs."""

SOURCE = "__ablate_source__"
"""Module attribute with the text of a spec file as it was loaded; the file may be edited later."""


def spec_module_name(path: Path | str) -> str:
    """Derive the module name of a spec file, unique per path."""
    path = Path(path).resolve()
    stem = re.sub(r"\W", "_", path.stem)
    return f"ablate_spec_{stem}_{blake2b(str(path).encode(), digest_size=6).hexdigest()}"


def ran_other_code(state: TrialState, sources: Mapping[str, str]) -> bool:
    """Return True if a finished trial was made by code other than `sources`; unknown code is other code."""
    return state.result is not None and made_by(state, state.result.attempt) != [dict(sources)]


def made_by(state: TrialState, attempt: int) -> list[dict[str, str] | None]:
    """List the distinct sources of `attempt` and its predecessors, latest first; None if unknown."""
    found = [current_sources(each.start.get("sources") if each else None) for each in lineage(state, attempt)]
    return [each for at, each in enumerate(found) if each not in found[:at]]


def lineage(state: TrialState, attempt: int) -> Iterator[AttemptState | None]:
    """Yield `attempt`, the one that it resumed from, and so on; None for one without a record, which is the last."""
    earlier = {each.attempt: each for each in state.attempts}
    following: int | None = attempt
    while following is not None:
        found = earlier.pop(following, None)  # popped: a damaged record must not cause a loop
        yield found
        following = found and (found.start.get("resumed_from") or {}).get("attempt")


@final
class Codes:
    """Hashes of code, computed once; later edits do not change them.

    `known` holds `modules` of another process with the same code, `files` the spec files, loaded before.
    """

    def __init__(self, known: Mapping[str, str] | None = None, files: Iterable[Path] = ()) -> None:
        self._modules = dict(known or {})
        self._loading = sources_of_loading(files)
        self._imports: dict[str, list[ModuleType]] = {}
        self._found: dict[frozenset[type], dict[str, str]] = {}

    @cached_property
    def core(self) -> str:
        """The hash of the core, 32 hexadecimal digits."""
        if "core" not in self._modules:
            files = sorted(file for pattern in CORE for file in PROJECT.glob(pattern) if file.name != "__init__.py")
            found = {file.relative_to(PROJECT).as_posix(): _of_file(file) for file in files}
            self._modules["core"] = hash_text(canonical_json(found))
        return self._modules["core"]

    @property
    def modules(self) -> dict[str, str]:
        """Hashes of the core and of project modules used so far."""
        return {**self._modules, "core": self.core}

    def sources(self, trial: Spec) -> dict[str, str]:
        """Hash every source of `trial`: "core", and a name per module or class."""
        classes = frozenset(type(spec) for spec in specs(trial))
        if classes not in self._found:
            self._found[classes] = {"core": self.core, **self._of_classes(classes), **self._loading}
        return self._found[classes]

    def _of_classes(self, classes: frozenset[type]) -> dict[str, str]:
        found: dict[str, str] = {}
        above = {parent for cls in classes for parent in cls.__mro__}  # including mixins
        own = {cls for cls in above if cls.__module__.partition(".")[0] not in _PLAIN}
        for cls in sorted(own, key=lambda cls: (cls.__module__, cls.__qualname__)):
            module = sys.modules.get(cls.__module__)
            if module is None or not has_source(module):
                found[f"class {cls.__qualname__}"] = hash_text("\n".join(_list_methods(cls)))
            elif _is_users(module):
                self._add_users(cls, module, found)
            else:
                self._add_module(module, found)
        return found

    def _add_module(self, module: ModuleType, found: dict[str, str]) -> None:
        """Add a whole module of the project or an installed package."""
        name, room, file = module.__name__, package_of(module), Path(_file(module))
        if name in found or room in _SAYS_NOTHING or (room and (file.name == "__init__.py" or _in_core(file, PROJECT))):
            return
        if room and name not in self._modules:
            self._modules[name] = _of_file(file)
        found[name] = self._modules[name] if room else _of_file(file)
        for other in self._find_followed(module):
            self._add_module(other, found)

    def _find_followed(self, module: ModuleType) -> list[ModuleType]:
        """List the imports of `module` from `_FAMILIES`."""
        name = module.__name__
        if name not in self._imports:
            found = imported_modules(statements(source_text(module)), module) if name.startswith(_FAMILIES) else ()
            self._imports[name] = [other for other in found if other.__name__.startswith(_FAMILIES)]
        return self._imports[name]

    def _add_users(self, cls: type, module: ModuleType, found: dict[str, str]) -> None:
        """Add the part of a user's `module` that `cls` reaches, and its imports except installed packages."""
        part = relevant(statements(source_text(module)), cls.__qualname__.partition(".")[0], _grids_in(module))
        found[f"class {cls.__qualname__}"] = digest(part)
        waiting = list(imported_modules(part, module))
        while waiting:
            other = waiting.pop()
            if package_of(other):
                self._add_module(other, found)
            elif other.__name__ not in found and _is_users(other) and has_source(other):
                whole = statements(source_text(other))
                found[other.__name__] = digest(whole)
                waiting.extend(imported_modules(whole, other))


def sources_of_loading(files: Iterable[Path]) -> dict[str, str]:
    """Hash what the loaded spec files did, and the modules that they import, beyond binding names."""
    found: dict[str, str] = {}
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
                name = Path(_file(each)).name if SOURCE in vars(each) else each.__name__  # wherever a spec file lies
                found[name] = digest(part)
            used = {other.__name__ for other in imported_modules(part, each)}
            waiting += [(other, other.__name__ in used) for other in imported_modules(text, each)]
    spec = {"spec": hash_text(canonical_json(found))} if found else {}
    return {**spec, **read_by(readers, named)}


def _acting_imports(found: Iterable[ast.stmt], importer: ModuleType, seen: set[str]) -> set[str]:
    """Name what a user's file imports from other user files that may change anything beyond its own variables."""
    names: set[str] = set()
    for statement in found:
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
_FAMILIES = ("runners.tasks.", "runners.probes.", "runners.evaluations.")
"""Packages whose modules share helpers outside the core: such imports count too."""

_SAYS_NOTHING = frozenset({"ablate", "grid", "store", "dashboards"})
"""Packages that never change numbers."""


@cache  # a trial checks hundreds of imports, mostly the same files
def _in_core(file: Path, project: Path) -> bool:
    within = file.resolve().relative_to(project)
    return any(within.match(pattern) for pattern in CORE)


def _file(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or ""


def _is_users(module: ModuleType) -> bool:
    return SOURCE in vars(module) or (package_of(module) is None and not is_installed(_file(module)))


def has_source(module: ModuleType) -> bool:
    """Return True if the Python text of `module` is known."""
    return SOURCE in vars(module) or (_file(module).endswith(".py") and Path(_file(module)).is_file())


def source_text(module: ModuleType) -> str:
    """Return the source text of `module`."""
    kept = vars(module).get(SOURCE)
    return decode_source(Path(_file(module)).read_bytes()) if kept is None else str(kept)


def _of_file(file: Path) -> str:
    about = file.stat()
    return _of_file_as_of(file, about.st_mtime_ns, about.st_size)


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
