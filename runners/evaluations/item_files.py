"""Items of evaluations in JSON lines: a .jsonl file, or a folder of these.

An item belongs to a set, which has its own rows: a benchmark, or a part of one. The evaluation defines the fields of
the lines. The hash of the files is part of a spec, and their place is not.
"""

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar

from pydantic import Field, PositiveInt, model_validator

from grid.errors import SpecError
from grid.spec import OutsideKey
from runners.evaluations.evaluation import Evaluation, require_task
from runners.tasks.file_cache import cache_by_file
from runners.tasks.paths import absolute_path
from runners.tasks.task import Task
from runners.tasks.text.corpus import content_hash
from runners.tasks.text.encoder import Encodes
from variants import Backbone

Name = Annotated[str, Field(pattern="^[^\\W_A-Z]+(_[^\\W_A-Z]+)*$")]


class Line(NamedTuple):
    """One line of a file."""

    where: str
    """File and line number, for messages."""
    place: str
    """File name and line number without the folder: the default name of an item."""
    fields: Mapping[str, Any]

    def text(self, name: str, default: str | None = None) -> str:
        """Return the text field `name`, or `default` if it is missing.

        Raises:
            SpecError: it is missing or no text.
        """
        value = self.fields.get(name, default)
        if not isinstance(value, str):
            raise SpecError(f"the field {name!r} of an item is a text; {self.where} has {value!r:.60}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the field `name`, a list of texts that is not empty.

        Raises:
            SpecError: it is missing or something else.
        """
        value = self.fields.get(name)
        if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
            raise SpecError(f"the field {name!r} of an item is a list of texts; {self.where} has {value!r:.60}")
        return tuple(value)


class FromFiles(Evaluation):
    """An evaluation whose items lie in files. A model of text sees at most `context` tokens of them at a time."""

    source: Annotated[str, OutsideKey()]
    """A .jsonl file or a folder of these."""
    content_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")] = None
    """Hash of all files; filled in when the spec is built."""
    sets: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """Sets of items; None is all, by name once the spec is built."""
    context: PositiveInt = 512
    """Most tokens that a model reads at a time."""

    @model_validator(mode="after")
    def _matches_the_files(self) -> Self:
        """Read the files, unless the spec has their hash and they are missing."""
        object.__setattr__(self, "source", absolute_path("source", self.source))
        if self.sets is not None:
            self.set_normal_form(sets=tuple(sorted(set(self.sets))))
        if self.content_hash is not None and self.sets is not None and not Path(self.source).exists():
            return self
        try:
            if self.content_hash is None:
                self.set_normal_form(content_hash=hash_of(Path(self.source)))
            there = self._items()
            if self.sets is None:
                self.set_normal_form(sets=tuple(there))
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    @abstractmethod
    def _items(self) -> Mapping[str, Mapping[str, Any]]:
        """Read the items of every chosen set with `read_sets`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sets, sorted."""
        return self.sets or ()

    @property
    def length(self) -> int:
        return self.context

    def record_of(self, sets: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the record of the items that were read."""
        items = {name: len(members) for name, members in sets.items()}
        return {"source": self.source, "content_hash": self.content_hash, "items": items}

    def check(self, task: Task, model: Backbone) -> None:
        require_task(self, task, Encodes, "a task of text")
        if not model.causal:
            raise ValueError(
                f"{self.label} needs a causal model; an encoder sees the next token; leave it out of evaluations"
            )


Item = TypeVar("Item")
Parse = Callable[[Line], tuple[str, str, Item]]
"""Parses a line into the name of its set as written, the name of the item, and the item; may raise SpecError."""


def read_sets(spec: FromFiles, parse: Parse[Item]) -> dict[str, dict[str, Item]]:
    """Read the items of the sets of `spec`, or of all sets, by set and name.

    Raises:
        SpecError: the files are missing or invalid, their hash differs from the spec, or a set is missing.
    """
    source, actual = Path(spec.source), hash_of(Path(spec.source))
    if spec.content_hash != actual:
        raise SpecError(
            f"content_hash is {spec.content_hash} and {source} has {actual}; restore the files, or leave content_hash "
            "out to take them as they are"
        )
    sets = _parse_files(source, actual, parse)
    for name in spec.names:
        if name not in sets:
            raise SpecError(f"{source} has no set {name!r}; it has {', '.join(sets)}")
    return {name: items for name, items in sets.items() if not spec.names or name in spec.names}


def slug(name: str, where: str) -> str:
    """Return `name` in lower case, with `_` for all that is no letter and no digit. Rows of a set have this name.

    Raises:
        SpecError: nothing is left of it.
    """
    text = re.sub(r"[\W_]+", "_", name.lower()).strip("_")
    if not text:
        raise SpecError(f"the name of a set needs letters or digits; {where} has {name!r}")
    return text


def hash_of(source: Path) -> str:
    """Compute blake2b-128 over the files' hashes; cheap after the first time in a process.

    Raises:
        SpecError: there is no such file.
        EnvironmentProblem: it cannot be read.
    """
    return content_hash(*(_read(path)[0] for path in list_files(source, ".jsonl", "items")))


@lru_cache(maxsize=64)
def _parse_files(source: Path, content: str, parse: Parse[Item]) -> dict[str, dict[str, Item]]:
    del content  # part of the cache key
    sets: dict[str, dict[str, Item]] = {}
    names: dict[str, str] = {}
    for path in list_files(source, ".jsonl", "items"):
        for line in _lines(path, _read(path)[1]):
            group, item_name, item = parse(line)
            name = slug(group, line.where)
            if names.setdefault(name, group) != group:
                raise SpecError(
                    f"names of sets differ in letters or digits; {line.where} has {group!r} and there is "
                    f"{names[name]!r}; rename one"
                )
            members = sets.setdefault(name, {})
            if item_name in members:
                raise SpecError(f"each item of a set has its own `id`; {line.where} repeats {item_name!r}")
            members[item_name] = item
    if not sets:
        raise SpecError(f"{source} has no items")
    return dict(sorted(sets.items()))


def list_files(source: Path, suffix: str, what: str) -> list[Path]:
    """List a file, or the files of a folder without its subfolders; `what` names their content in errors.

    Raises:
        SpecError: there is no such file, or none has this suffix.
    """
    if source.is_dir():
        paths = sorted(path for path in source.iterdir() if path.suffix.lower() == suffix and path.is_file())
        if not paths:
            raise SpecError(f"a folder of {what} holds {suffix} files; {source} has none")
        return paths
    if not source.exists():
        raise SpecError(f"there are no {what} {source}; give a {suffix} file or a folder of these")
    if source.suffix.lower() != suffix:
        raise SpecError(f"{what} are a {suffix} file or a folder of these; got {source}")
    return [source]


@cache_by_file(entries=256)
def _read(path: Path) -> tuple[str, bytes]:
    """Return the hash and the content of a file."""
    data = path.read_bytes()
    return content_hash(path.name, data), data


def _lines(path: Path, data: bytes) -> list[Line]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"items are UTF-8; {path} is not, at byte {error.start}; convert it") from error
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise SpecError(f"each line of a file of items is one JSON object; {where}: {error}; mend it") from error
        except RecursionError as error:
            raise SpecError(f"a line of a file of items is one JSON object; {where} is nested too deep") from error
        if not isinstance(fields, dict):
            raise SpecError(f"each line of a file of items is one JSON object; {where} has {line[:60]!r}")
        lines.append(Line(where, f"{path.stem}/{number}", fields))
    return lines
