"""Items to judge models by, in JSON lines of the user's own: a .jsonl file, or a folder of these.

An item belongs to a set, which is judged apart: a benchmark, or a part of one. What the lines hold is the evaluation's
business. The hash of the files is part of a spec, where they lie is not.
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
from runners.evaluations.evaluation import Evaluation
from runners.tasks.file_cache import cache_by_file
from runners.tasks.paths import absolute_path
from runners.tasks.task import Task
from runners.tasks.text.corpus import content_hash
from runners.tasks.text.encoder import Encodes
from variants import Backbone

Name = Annotated[str, Field(pattern="^[^\\W_A-Z]+(_[^\\W_A-Z]+)*$")]


class Line(NamedTuple):
    """One line."""

    where: str
    """The file and the number of the line, for messages."""
    place: str
    """The same, whatever folder the file is in: what an item without a name of its own is called."""
    fields: Mapping[str, Any]

    def text(self, name: str, otherwise: str | None = None) -> str:
        """The field `name`, a text; `otherwise` where it is missing and that is allowed.

        Raises:
            SpecError: it is missing or no text.
        """
        found = self.fields.get(name, otherwise)
        if not isinstance(found, str):
            raise SpecError(f"the field {name!r} of an item is a text; {self.where} has {found!r:.60}")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """The field `name`, a list of texts, one or more.

        Raises:
            SpecError: it is missing or something else.
        """
        found = self.fields.get(name)
        if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found):
            raise SpecError(f"the field {name!r} of an item is a list of texts; {self.where} has {found!r:.60}")
        return tuple(found)


class FromFiles(Evaluation):
    """An evaluation whose items lie in files and are shown to a model of text, at most `context` tokens at a time."""

    source: Annotated[str, OutsideKey()]
    """A .jsonl file or a folder of these."""
    content_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")] = None
    """Of all its files; filled in when the spec is built."""
    sets: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """Which sets of items; None is all, by name once the spec is built."""
    context: PositiveInt = 512
    """Most tokens that a model reads at a time."""

    @model_validator(mode="after")
    def _is_what_lies_there(self) -> Self:
        """A spec that names its content can be read where the files are not; one that does not, looks."""
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
        """The items of every chosen set, by its name; `chosen` reads them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The sets, sorted."""
        return self.sets or ()

    @property
    def length(self) -> int:
        return self.context

    def record_of(self, sets: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """What an attempt records of the items that it found."""
        items = {name: len(members) for name, members in sets.items()}
        return {"source": self.source, "content_hash": self.content_hash, "items": items}

    def check(self, task: Task, model: Backbone) -> None:
        if not isinstance(task, Encodes):
            raise ValueError(  # noqa: TRY004  (a rule of the spec)
                f"{self.label} shows text to a model that reads text; the task is {type(task).__name__}: "
                "leave it out of evaluations"
            )
        if not model.causal:
            raise ValueError(
                f"{self.label} asks what comes next and the model is an encoder, which sees it: leave it out of "
                "evaluations"
            )


Item = TypeVar("Item")
Parse = Callable[[Line], tuple[str, str, Item]]
"""A line as the name of its set, as it stands there, that of the item, and the item; SpecError where it is none."""


def chosen(spec: FromFiles, parse: Parse[Item]) -> dict[str, dict[str, Item]]:
    """The items of the sets of `spec`, all of them where it names none, by set and name.

    Raises:
        SpecError: as `files` and `parse`; other content than `spec` names, or no such set.
    """
    source, found = Path(spec.source), hash_of(Path(spec.source))
    if spec.content_hash != found:
        raise SpecError(
            f"content_hash names the items a model is judged by; it is {spec.content_hash} and {source} has {found}; "
            "restore these, or leave content_hash out to take them as they are"
        )
    there = _parsed(source, found, parse)
    for name in spec.names:
        if name not in there:
            raise SpecError(f"sets are among those of {source}; got {name!r}; there are {', '.join(there)}")
    return {name: items for name, items in there.items() if not spec.names or name in spec.names}


def slug(name: str, where: str) -> str:
    """`name` in lower case with `_` for whatever is no letter and no digit: what rows of a set are called.

    Raises:
        SpecError: nothing is left of it.
    """
    found = re.sub(r"[\W_]+", "_", name.lower()).strip("_")
    if not found:
        raise SpecError(f"the name of a set has letters or digits; {where} has {name!r}")
    return found


def hash_of(source: Path) -> str:
    """blake2b-128 over the files' hashes; cheap after the first time in a process.

    Raises:
        SpecError: there is no such file.
        EnvironmentProblem: it cannot be read.
    """
    return content_hash(*(_read(path)[0] for path in _files(source)))


@lru_cache(maxsize=64)
def _parsed(source: Path, found: str, parse: Parse[Item]) -> dict[str, dict[str, Item]]:
    del found  # other content is another entry
    sets: dict[str, dict[str, Item]] = {}
    written: dict[str, str] = {}
    for path in _files(source):
        for line in _lines(path, _read(path)[1]):
            group, item, content = parse(line)
            name = slug(group, line.where)
            if written.setdefault(name, group) != group:
                raise SpecError(
                    f"sets are told apart by letters and digits, in lower case; {line.where} has {group!r} and there "
                    f"is {written[name]!r}: give one of them another name"
                )
            members = sets.setdefault(name, {})
            if item in members:
                raise SpecError(f"items of a set are told apart by their `id`; {line.where} has {item!r} once more")
            members[item] = content
    if not sets:
        raise SpecError(f"a file of items has one per line; {source} has none")
    return dict(sorted(sets.items()))


def _files(source: Path) -> list[Path]:
    if source.is_dir():
        found = sorted(path for path in source.iterdir() if path.suffix.lower() == ".jsonl" and path.is_file())
        if not found:
            raise SpecError(f"a folder of items holds .jsonl files; {source} has none")
        return found
    if not source.exists():
        raise SpecError(f"there are no items {source}; give a .jsonl file or a folder of these")
    if source.suffix.lower() != ".jsonl":
        raise SpecError(f"items are a .jsonl file or a folder of these; got {source}")
    return [source]


@cache_by_file(entries=256)
def _read(path: Path) -> tuple[str, bytes]:
    """The hash of a file and what is in it."""
    data = path.read_bytes()
    return content_hash(path.name, data), data


def _lines(path: Path, data: bytes) -> list[Line]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"items are UTF-8; {path} is not, at byte {error.start}; convert it") from error
    found = []
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
        found.append(Line(where, f"{path.stem}/{number}", fields))
    return found
