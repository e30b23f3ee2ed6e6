"""Loads a user's spec file, a Python file that defines grids, by its path.

The module name derives from the path, so worker processes load the file under the same name. The file can
import modules of its directory, after those that are installed; the working directory is not on the import path.
"""

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from types import ModuleType

from pydantic import PydanticUserError, ValidationError

from ablate.grid import Grid, PaperGrids, spec_error
from ablate.grid.errors import AblateError, EnvironmentProblem, NotFoundError, SpecError
from ablate.grid.suggestions import nearest, not_an_argument, suggest_name
from ablate.runners.output import slow_notice
from ablate.runners.provenance.code import SOURCE, spec_module_name
from ablate.runners.provenance.earlier_names import allow_earlier_names
from ablate.runners.provenance.loading import record_reads
from ablate.runners.provenance.origin import is_installed
from ablate.runners.replacements import REPLACEMENTS


def load_spec_file(path: Path | str) -> dict[str, Grid]:
    """Run the spec file and return the grids it defines, by name; names that begin with `_` are private.

    Raises:
        NotFoundError: there is no such file.
        SpecError: it raises (the text says at which of its lines), it defines no grid, or two of its grids share a
            name.
    """
    path = Path(path)
    with slow_notice(f"loading {path}"):
        module = import_spec_file(path)
    grids: dict[str, Grid] = {}
    for variable, value in vars(module).items():
        if variable.startswith("_") or not isinstance(value, Grid | PaperGrids):
            continue
        for grid in [value] if isinstance(value, Grid) else value.grids.values():
            if grids.setdefault(grid.name, grid) is not grid:
                raise SpecError(f"{path}: two grids are named {grid.name!r}; give one of them another name")
    if not grids:
        raise SpecError(f"{path} defines no Grid; assign one to a name at the top of the file")
    return grids


def import_spec_file(path: Path | str, source: str | None = None) -> ModuleType:
    """Run the spec file as the module `spec_module_name(path)`, replacing an earlier load.

    `source` is its text, if another process has read it.

    Raises:
        NotFoundError: there is no such file.
        SpecError: it raises; a failed load leaves the earlier module in place.
        EnvironmentProblem: a package, network or permission is missing.
    """
    path = Path(path)
    source = _source(path) if source is None else source
    name = spec_module_name(path)
    module = ModuleType(name)
    module.__file__ = str(path.resolve())
    module.__dict__[SOURCE] = source
    before = sys.modules.get(name)
    _find_imports_in(path.resolve().parent)
    allow_earlier_names(path.resolve().parent, SPEC_FOLDERS)
    sys.modules[name] = module  # before it runs: pydantic looks up a class's module while the class is made
    try:
        # Compiled here and not by the import system, whose cache would miss an edit within the same second.
        with record_reads(Path(module.__file__)):
            keeps = min(sys.flags.optimize, 1)  # its docstrings, also with -OO
            exec(compile(source, module.__file__, "exec", dont_inherit=True, optimize=keeps), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        if not isinstance(error, Exception | SystemExit):
            raise
        kind = EnvironmentProblem if isinstance(error, EnvironmentProblem) else SpecError
        raise kind(_explain(path, module.__file__, error)) from error
    return module


def place_of(grid: str, path: Path) -> str:
    """Return `path:line` of the statement of a loaded spec file that defines a grid; the path alone if none does."""
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    module = sys.modules.get(spec_module_name(path))
    values = vars(module) if module else {SOURCE: ""}
    for statement in ast.parse(values[SOURCE]).body:
        for target in statement.targets if isinstance(statement, ast.Assign) else ():
            value = values.get(target.id) if isinstance(target, ast.Name) else None
            if (isinstance(value, Grid) and value.name == grid) or (
                isinstance(value, PaperGrids) and grid in value.grids
            ):
                return f"{shown}:{statement.lineno}"
    return str(shown)


SPEC_FOLDERS: list[Path] = []
"""Directories of the spec files loaded so far, the latest last; imports look into the latest first."""


def _find_imports_in(folder: Path) -> None:
    """Put `folder` last on the import path; forget modules of other spec files' directories that it has too."""
    others, here = tuple(f"{each}/" for each in SPEC_FOLDERS), f"{folder}/"
    for name, module in sys.modules.copy().items():
        file = str(getattr(module, "__file__", None))  # as text: there are thousands of modules
        if file.startswith(others) and not file.startswith(here) and SOURCE not in vars(module):
            top = folder / name.partition(".")[0]
            if top.with_suffix(".py").exists() or top.is_dir():
                del sys.modules[name]
    earlier = set(map(str, SPEC_FOLDERS))
    theirs = [each for each in sys.path if each not in earlier]
    SPEC_FOLDERS[:] = [*(each for each in SPEC_FOLDERS if each != folder), *([] if str(folder) in theirs else [folder])]
    sys.path[:] = [*theirs, *map(str, reversed(SPEC_FOLDERS))]


def _source(path: Path) -> str:
    try:
        return importlib.util.decode_source(path.read_bytes())
    except FileNotFoundError as error:
        beside = {each.name: each for folder in (Path("specs"), path.parent) for each in sorted(folder.glob("*.py"))}
        near = nearest(path.name, [*beside])
        meant = f"; did you mean '{beside[near]}'?" if near else ""
        raise NotFoundError(f"there is no spec file {path}; give the path of a Python file{meant}") from error
    except IsADirectoryError as error:
        raise SpecError(f"{path} is a directory; give the path of a Python file that defines a Grid") from error
    except (UnicodeDecodeError, SyntaxError) as error:
        raise SpecError(f"{path} is not Python text ({error}); save it as UTF-8") from error
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {path}: {error.strerror}; check its permissions") from error


def _explain(path: Path, file: str, error: BaseException) -> str:
    """Format `path:line: message`, with the line of the file or of a file that it imports.

    For errors meant for users, the calling line is shown.
    """

    def name(loaded: str) -> str:
        return str(path) if loaded == file else loaded  # as the user named it

    frames = [frame for frame in extract_tb(error.__traceback__) if not is_installed(frame.filename)]
    lines = [frame.lineno for frame in frames if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename is not None:
        loading, where = error.filename, f"{name(error.filename)}:{error.lineno}"
    else:
        loading = next((frame.filename for frame in reversed(frames) if frame.name == "<module>"), file)
        places = [frame for frame in frames if frame.filename == loading]
        where = f"{name(loading)}:{places[-1].lineno}" if places else str(path)
    raised = frames[-1] if frames and frames[-1].filename != loading else None
    inside = f" (raised at {raised.filename}:{raised.lineno})" if raised else ""
    message = _message(error, inside)
    return f"{where}: {message}" + (f" (imported by {path}:{lines[-1]})" if loading != file and lines else "")


def _message(error: BaseException, inside: str) -> str:
    if isinstance(error, SyntaxError):
        return f"syntax error: {error.msg}"
    if isinstance(error, ValidationError):
        text = str(spec_error(error, ""))  # begins with the class of the spec
        return text if text.startswith((f"{error.title}:", f"{error.title} ")) else f"{error.title}: {text}"
    if isinstance(error, PydanticUserError):
        return error.message.partition("\n")[0]
    text = str(error) or "no message"
    if wanted := re.match(r"cannot import name '(\w+)' from '([\w.]+)'", text):
        left = REPLACEMENTS.get(wanted[1]) if wanted[2].startswith("ablate") else None
        inside = f"; {left}" if left else suggest_name(wanted[1], dir(sys.modules.get(wanted[2])))
    if type(error) is NameError and error.name:
        public = importlib.import_module("ablate").__all__
        imports = f"; `from ablate import {error.name}` defines it"
        inside += imports if error.name in public else suggest_name(error.name, public)
    unknown = re.match(r"(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'", text)
    if unknown and (function := _find_called(unknown[1], error)):
        return not_an_argument(unknown[2], function)
    return text if isinstance(error, AblateError) else f"{type(error).__name__}: {text}{inside}"


def _find_called(name: str, error: BaseException) -> Callable[..., object] | None:
    """Find the function `name` that the place of `error` called, among its names and its modules."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    known = trace.tb_frame.f_globals if trace else {}
    modules = (each for each in known.values() if isinstance(each, ModuleType))
    candidates = (known.get(name), *(getattr(each, name, None) for each in modules))
    return next(filter(callable, candidates), None)
