"""Items of evaluations in JSON lines: a .jsonl file, or a folder of these.

An item belongs to a set, which has its own rows. The hash of the files is part of a spec, and their place is not.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import torch
from pydantic import Field, PositiveInt, model_validator

from grid.errors import SpecError
from grid.spec import OutsideKey
from runners.evaluations.evaluation import Evaluation, Judge, over_sets
from runners.tasks.task import Items, Measurements, Predict, Task, over_items
from runners.tasks.text.corpus import content_hash, decode, parse_object
from runners.tasks.text.encoder import Encodes
from runners.tasks.user_files import absolute_path, cache_by_file, require_hash

Name = Annotated[str, Field(pattern="^[^\\W_A-Z]+(_[^\\W_A-Z]+)*$")]


class Line(NamedTuple):
    """One line of a file."""

    where: str
    """File and line number, for messages."""
    place: str
    """File name and line number without the folder: the default name of an item."""
    fields: Mapping[str, Any]

    def text(self, name: str, default: str | None = None) -> str:
        """Return the text field `name`, or `default` if it is missing; SpecError if it is missing or no text."""
        value = self.fields.get(name, default)
        if not isinstance(value, str):
            raise SpecError(f"the field {name!r} of an item is a text; {self.where} has {value!r:.60}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the field `name`, a list of texts that is not empty; SpecError if it is missing or something else."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
            raise SpecError(f"the field {name!r} of an item is a list of texts; {self.where} has {value!r:.60}")
        return tuple(value)


class HashedFiles(Evaluation):
    """An evaluation of files, whose hash is part of the spec. A spec with the hash works without them until it runs."""

    needs: ClassVar[tuple[type, str]] = (Encodes, "a task of text")
    names_field: ClassVar[str]
    """The field with the names of the parts; None there means all parts."""

    source: Annotated[str, OutsideKey()]
    """A file or a folder of these."""
    content_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")] = None
    """Hash of all files; filled in when the spec is built."""

    @model_validator(mode="after")
    def _matches_the_files(self) -> Self:
        object.__setattr__(self, "source", absolute_path("source", self.source))
        names = getattr(self, self.names_field)
        if names is not None:
            self.set_normal_form(**{self.names_field: tuple(sorted(set(names)))})
        if self.content_hash is not None and names is not None and not Path(self.source).exists():
            return self
        try:
            if self.content_hash is None:
                self.set_normal_form(content_hash=self.hash_files())
            there = self.read_parts()
        except SpecError as error:
            raise ValueError(str(error)) from error
        if names is None:
            self.set_normal_form(**{self.names_field: tuple(there)})
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return getattr(self, self.names_field) or ()

    @abstractmethod
    def hash_files(self) -> str:
        """Hash the files."""

    @abstractmethod
    def read_parts(self) -> Mapping[str, Any]:
        """Read all chosen parts by name; SpecError if the files have another hash."""


class FromFiles(HashedFiles):
    """An evaluation whose items lie in files. A model of text sees at most `context` tokens of them at a time."""

    causal_only: ClassVar[bool] = True
    names_field: ClassVar[str] = "sets"

    source: Annotated[str, OutsideKey()]
    """A .jsonl file or a folder of these."""
    sets: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """Sets of items; None is all, by name once the spec is built."""
    context: PositiveInt = 512
    """Most tokens that a model reads at a time."""

    def hash_files(self) -> str:
        return content_hash(*(_read(path)[0] for path in list_files(Path(self.source), ".jsonl", "items")))

    @property
    def length(self) -> int:
        return self.context


Item = TypeVar("Item")
Parse = Callable[[Line], tuple[str, str, Item]]
"""Parses a line into the name of its set as written, the name of the item, and the item; may raise SpecError."""


def read_sets(spec: FromFiles, parse: Parse[Item]) -> dict[str, dict[str, Item]]:
    """Read the items of the chosen sets, by set and name; SpecError if files or sets are missing or invalid."""
    source, actual = Path(spec.source), spec.hash_files()
    require_hash(spec.content_hash, actual, source)
    sets = _parse_files(source, actual, parse)
    for name in spec.names:
        if name not in sets:
            raise SpecError(f"{source} has no set {name!r}; it has {', '.join(sets)}")
    return {name: items for name, items in sets.items() if not spec.names or name in spec.names}


Asked = TypeVar("Asked", bound=FromFiles)


class SetsJudge(Judge, Generic[Asked, Item]):
    """The items of sets, as a model reads them. The first `unscored` positions may see later tokens."""

    def __init__(self, spec: Asked, task: Task) -> None:
        assert isinstance(task, Encodes)
        self.spec, self.encoder, self.unscored = spec, task.encoder(), task.unscored
        self.sets: Mapping[str, Mapping[str, Item]] = spec.read_parts()
        self.encoded = {
            name: [self.encode(name, item, f"item {key!r} of {spec.source}") for key, item in items.items()]
            for name, items in self.sets.items()
        }

    @abstractmethod
    def encode(self, name: str, item: Item, what: str) -> Any:
        """Encode an item of the set `name`, which `what` describes in errors."""

    @property
    def record(self) -> Mapping[str, Any]:
        items = {name: len(members) for name, members in self.sets.items()}
        return {"source": self.spec.source, "content_hash": self.spec.content_hash, "items": items}

    @abstractmethod
    def values(self, predict: Predict, name: str) -> Mapping[str, Sequence[float]]:
        """Compute by measurement the values of all items of a set."""

    def evaluate_sets(self, predict: Predict, point: Mapping[str, float]) -> Iterator[Measurements | Items]:
        """Yield every measurement of every set with the values of its items, then the means over sets."""
        by_kind: dict[str, list[Measurements]] = {}
        for name, items in self.sets.items():
            for kind, values in self.values(predict, name).items():
                row = over_items(f"{kind}.{name}", torch.tensor(values, dtype=torch.float64), point)
                yield row
                yield Items(row.name, row.point, tuple(items), values)
                by_kind.setdefault(kind, []).append(row)
        for kind, rows in by_kind.items():
            yield over_sets(kind, rows)


def slug(name: str, where: str) -> str:
    """Return `name` for rows: lower case, `_` for all but letters and digits; SpecError if nothing is left."""
    text = re.sub(r"[\W_]+", "_", name.lower()).strip("_")
    if not text:
        raise SpecError(f"the name of a set needs letters or digits; {where} has {name!r}")
    return text


@lru_cache(maxsize=64)
def _parse_files(source: Path, content: str, parse: Parse[Item]) -> dict[str, dict[str, Item]]:
    del content  # part of the cache key
    sets: dict[str, dict[str, Item]] = {}
    names: dict[str, str] = {}
    for path in list_files(source, ".jsonl", "items"):
        for number, text in enumerate(decode(_read(path)[1], path).split("\n"), start=1):
            if not text.strip():
                continue
            where = f"{path}, line {number}"
            line = Line(where, f"{path.stem}/{number}", parse_object(text, where))
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
    """List a file, or the files of a folder, with this suffix; SpecError, which names `what`, if there are none."""
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
    data = path.read_bytes()
    return content_hash(path.name, data), data
