"""The code of a program: its script and the local files that it imports or names, by hash."""

import ast
import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from shutil import which
from typing import Final

from ablate.grid.errors import SpecError
from ablate.runners.provenance.source import digest

_MOST_BYTES: Final = 2**20
"""Larger files that an argument names are data."""
PYTHON: Final = ("python", "python3")
"""Programs that stand for the interpreter of `ablate`."""
_SCRIPT: Final = re.compile(r"\S+\.(py|sh|bash|zsh|r|jl|js|ts|lua|pl|rb)", re.IGNORECASE)
_SETTINGS: Final = frozenset({".json", ".yaml", ".yml", ".toml", ".ini", ".cfg"})
_OUTPUT: Final = r"-+(?:o|out|output|log|save|results?|dump|write)(?![a-zA-Z])"
"""Options that name a file which the program writes."""
_WRITTEN: Final = re.compile(rf"(?:>|\btee(?:\s+-a)?|(?<!\S){_OUTPUT}[\w-]*[=\s])\s*\S+")
"""Files that a shell script, or what it runs, writes."""
_SOURCED: Final = re.compile(r"(?:^|[;&|])\s*(?:source|\.)\s+(\S+)", re.MULTILINE)
_MODULE: Final = re.compile(r"\s-m\s+([\w.]+)")
_WORD: Final = re.compile(r"[\w./-]+")
_STARTED: Final = (b"#!", b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""How a file begins that the system can start."""


def script_in(argv: Sequence[str], folder: Path) -> int | None:
    """Return the place of the script in `argv`.

    It is the first argument that is named like a script or begins with "#!". Else it is the program, if `argv` has its
    relative path, or a file without a suffix that follows the program.
    """
    named = [at for at, text in enumerate(argv) if text and text[0] != "-" and "{" not in text and (at or "/" in text)]
    for at in named:
        if _SCRIPT.fullmatch(argv[at]) or (at and _begins(folder / argv[at]).startswith(b"#!")):
            return at
    for at in named[:1]:
        own = not Path(argv[at]).is_absolute() if at == 0 else at == 1 and not Path(argv[at]).suffix
        if own and not {"-m", "-c"} & {*argv} and (folder / argv[at]).is_file():
            return at
    return None


def require_startable(argv: Sequence[str], folder: Path, path: str | None) -> None:
    """Raise SpecError unless `argv` can be started in `folder`; `path` is the PATH of the program."""
    name = argv[0]
    if not folder.is_dir():
        raise SpecError(f"there is no folder {folder}, where {name} would run; give another cwd")
    if "/" not in name:
        if name not in PYTHON and which(name, path=path) is None:
            here = f"; for that in {folder} write ./{name}" if (folder / name).is_file() else "; write its path"
            raise SpecError(f"there is no program {name} on the PATH of this machine{here}")
        return
    file = folder / name
    if not file.is_file():
        raise SpecError(f"there is no program {name} in {folder}; argv names it from there")
    if not os.access(file, os.X_OK):
        raise SpecError(f"{file} is not executable; run chmod +x on it, or put its interpreter first, such as sh")
    if not (first := _begins(file)).startswith(_STARTED):
        raise SpecError(f"{file} does not say what runs it; begin it with #!, or put its interpreter first, such as sh")
    interpreter = first[2:].split()[:1] if first.startswith(b"#!") else []
    if interpreter and not os.access(interpreter[0], os.X_OK):
        raise SpecError(
            f"{file} begins with #!{os.fsdecode(interpreter[0])}, which is no program on this machine; correct the line"
        )


def _begins(file: Path) -> bytes:
    """Return the first line of a file, as far as it matters; nothing if it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.readline(256)
    except (OSError, ValueError):
        return b""


def code_of(argv: Sequence[str], folder: Path) -> dict[str, str]:
    """Return hashes by name of the scripts in `argv`, of local files that they use, and of settings that `argv` names.

    Files that the program writes are no code. Raises SpecError if there is no such script.
    """
    at = script_in(argv, folder)
    if at is not None and not (folder / argv[at]).is_file():
        raise SpecError(f"there is no {argv[at]} in {folder}; argv names the script from the folder of the spec file")
    waiting = [] if at is None else [Path(os.path.normpath(folder / argv[at]))]
    for before, text in pairwise(["", *argv]):
        option, _, value = text.rpartition("=")
        if not re.match(_OUTPUT, option or before):
            waiting += [each for each in _local(value, folder) if _is_script(each) or each.suffix in _SETTINGS]
    modules = [argv[at + 1] for at, text in enumerate(argv[:-1]) if text == "-m"]
    waiting += [each for name in modules for each in _modules(name, (folder,))]
    code: dict[str, str] = {}
    while waiting:
        file = waiting.pop()
        name = f"file {os.path.relpath(file, folder)}"
        if name not in code:
            status = file.stat()
            code[name], used = _read(file, folder, status.st_mtime_ns, status.st_size)
            waiting += used
    return dict(sorted(code.items()))


def _is_script(file: Path) -> bool:
    return bool(_SCRIPT.fullmatch(file.name)) or _begins(file).startswith(b"#!")


@lru_cache(maxsize=1024)
def _read(file: Path, folder: Path, mtime_ns: int, size: int) -> tuple[str, tuple[Path, ...]]:
    """Hash a file; return the local files that it uses, too."""
    del mtime_ns, size  # an edited file has another cache key
    data = file.read_bytes()
    plain = blake2b(data, digest_size=16).hexdigest()
    if not (file.suffix == ".py" or re.match(rb"#!.*python", _begins(file))):
        return plain, tuple(_named(data.decode("utf-8", "replace"), file, folder)) if _is_script(file) else ()
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return plain, ()
    return digest(tree.body), tuple(_used(tree, file, folder))


def _named(text: str, file: Path, folder: Path) -> Iterator[Path]:
    """Yield scripts, sourced files, settings and modules that a shell script names; `$HERE/a.sh` is beside it."""
    text = _WRITTEN.sub(" ", text)
    words = set(_WORD.findall(text))
    sourced = set(_WORD.findall(" ".join(_SOURCED.findall(text))))
    for word in words | {each.lstrip("/") for each in words}:
        for each in _local(word, folder, file.parent):
            local = not word.startswith("/") and _begins(each).startswith(b"#!")
            code = _SCRIPT.fullmatch(each.name) or each.suffix in _SETTINGS or local or {word, f"/{word}"} & sourced
            if code and each != file:
                yield each
    for name in _MODULE.findall(text):
        yield from _modules(name, (folder,))


def _used(tree: ast.Module, file: Path, folder: Path) -> Iterator[Path]:
    """Yield local files that a Python file imports, or names in a text, as `exec(open("settings.py").read())` does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(alias.name, (file.parent, folder))
        elif isinstance(node, ast.ImportFrom):
            places = (file.parent, folder) if not node.level else (file.parents[node.level - 1],)
            for name in ("", *(alias.name for alias in node.names)):
                yield from _modules(".".join(filter(None, (node.module, name))), places)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _SCRIPT.fullmatch(node.value):
            yield from _local(node.value, folder, file.parent)


def _modules(name: str, places: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of a module in the first of `places` that has its package, and those of its parents."""
    parts = name.split(".")
    for place in places:
        top = place / parts[0]
        if not (top.is_dir() or top.with_suffix(".py").is_file()):
            continue
        for count in range(1, len(parts) + 1):
            path = place.joinpath(*parts[:count])
            yield from (each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file())
        return


def _local(text: str, *folders: Path) -> Iterator[Path]:
    """Yield the file that a text names, if it is small."""
    for folder in folders:
        try:
            path = folder / text
            if text.strip("./") and path.is_file() and path.stat().st_size <= _MOST_BYTES:
                yield Path(os.path.normpath(path))
                return
        except (OSError, ValueError):  # such as a name that is too long
            return
