"""The JSON records of a campaign: what their fields hold, and the columns of the database that follow from them.

docs/wire-format.md says what each field means. A field whose type names an `SqlColumn` has a column of its name. Import
this module where a record is read, since commands that read none need no pydantic.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, field_validator

from ablate.grid.errors import StoreError
from ablate.grid.validation import spec_error
from ablate.store.files.atomic import parse_object, read_bytes, read_json
from ablate.store.files.layout import Layout
from ablate.store.files.record_fields import check_schema, clean_text, json_text
from ablate.store.files.shards import SHARD_NAME


def _clean_texts(values: list[Any] | None) -> list[str] | None:
    return None if values is None else [clean_text(str(value)) for value in values]


class SqlColumn(NamedTuple):
    """The column of a field: its SQL type, and how a value becomes one of it."""

    type: str
    convert: Callable[[Any], Any] | None = None


Text = Annotated[str, SqlColumn("VARCHAR", clean_text)]
Key = Annotated[str, Field(pattern="^[0-9a-f]{32}$"), SqlColumn("VARCHAR")]
Int32 = Annotated[int, Field(gt=-(2**31), lt=2**31), SqlColumn("INTEGER")]
Int64 = Annotated[int, Field(gt=-(2**63), lt=2**63), SqlColumn("BIGINT")]
Float = Annotated[float, SqlColumn("DOUBLE")]
Bool = Annotated[bool, SqlColumn("BOOLEAN")]
Json = Annotated[dict[str, Any], SqlColumn("JSON", json_text)]
Texts = Annotated[list[Any], SqlColumn("VARCHAR[]", _clean_texts)]
ShardNames = Annotated[list[Annotated[str, Field(pattern=f"^(?:{SHARD_NAME})$")]], SqlColumn("VARCHAR[]")]


class Record(BaseModel):
    """Fields in the order of the file. Unknown ones are of later releases, missing optional ones of earlier releases.

    A text among the annotations of a field describes its column.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    @classmethod
    def read(cls, path: Path) -> Self:
        """The record in the file `path`. Raises NotFoundError; StoreError: it is damaged or of another version."""
        record = read_json(path)
        check_schema(record)
        return cls.check(record)

    @classmethod
    def check(cls, record: Mapping[str, Any]) -> Self:
        """The `record` as a model. Raises StoreError with the first field that is missing or wrong."""
        try:
            return cls.model_validate(record)
        except ValidationError as error:
            raise StoreError(f"field {spec_error(error, '')}") from error

    @classmethod
    @cache
    def columns(cls) -> dict[str, SqlColumn]:
        """The columns by field."""
        hints = get_type_hints(cls, include_extras=True)
        columns = ((name, _column(hints[name])) for name in cls.model_fields)
        return {name: column for name, column in columns if column is not None}

    @classmethod
    def row(cls, record: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all columns; null where `record` has no such field."""
        get = record.get
        return {name: convert(get(name)) if convert else get(name) for name, (_, convert) in cls.columns().items()}

    @classmethod
    def ddl(cls, *, optional: bool) -> str:
        """The lines of its columns in a statement that makes a table; `optional`: the record may be missing."""
        lines = []
        for name, column in cls.columns().items():
            field = cls.model_fields[name]
            null = " NOT NULL" if field.is_required() and not optional else ""
            said = "".join(f"  -- {each}" for each in field.metadata if isinstance(each, str))
            lines.append(f"    {name} {column.type}{null},{said}\n")
        return "".join(lines)


def _column(hint: Any) -> SqlColumn | None:
    """The `SqlColumn` in an annotation, also of a type or null; None for one inside a list or an object."""
    if isinstance(hint, SqlColumn):
        return hint
    parts = get_args(hint) if get_origin(hint) in (Annotated, Union, UnionType) else ()
    return next(filter(None, map(_column, parts)), None)


class Resumed(Record):
    """The checkpoint that an attempt went on from."""

    attempt: Int32
    step: Int64


class Start(Record):
    """`start.json`: an attempt began."""

    trial: str
    attempt: int
    submission: Text
    worker: Int64
    host: Text
    pid: Annotated[Int64, "process number"]
    pid_started: float | None = None
    pid_space: Any = None
    started: Annotated[Float, "seconds since the epoch"]
    resumed_from: Resumed | None = None
    path: Annotated[Text | None, "execution path"] = None
    device: Text | None = None
    threads: Int32 | None = None
    code: Annotated[Text | None, "version of the code that a logged run states"] = None
    sources: Annotated[Json | None, "version of each class and hash of each part of the user's code, by name"] = None
    versions: Json | None = None
    data: Json | None = None
    heartbeat_s: Any = None
    place: Any = None


class WrittenRows(Record):
    """The rows of one table in shards."""

    rows: Int64
    step: Int64
    shards: ShardNames


Status = Annotated[Literal["ok", "failed", "stopped"], SqlColumn("VARCHAR")]


class End(Record):
    """`end.json`: the attempt ended."""

    trial: str
    attempt: int
    status: Annotated[Status, "ok, failed, stopped; null until it ends"]
    reason: Text | None = None
    message: Text | None = None
    traceback: Text | None = None
    fingerprint: Annotated[Text | None, "equal for failures of the same kind"] = None
    step: Int64 | None = None
    wall_s: Float | None = None
    train_s: Float | None = None
    evaluate_s: Float | None = None
    probe_s: Float | None = None
    ended: Annotated[Float, "seconds since the epoch"]
    parameters: Int64 | None = None
    operator_parameters: Int64 | None = None
    memory_bytes: Int64 | None = None
    wrote: dict[str, WrittenRows] | None = None
    files: list[Any] | None = None
    changes: Annotated[Texts | None, "what it changed of its process, by name; null in earlier releases"] = None
    cost: Annotated[Json | None, "what the attempt took, by name: sums over its own steps"] = None


class Evaluated(Record):
    """`evaluations/<key>.json`: a finished trial was evaluated later."""

    trial: Key
    attempt: Int32
    evaluation: Annotated[Key, "key of its spec"]
    kind: Text
    spec: Json
    step: Int64
    shards: Annotated[ShardNames, "files that hold its rows"]
    ended: Annotated[Float, "seconds since the epoch"]
    wall_s: Float
    host: Text
    device: Text
    threads: Int32
    versions: Json
    sources: Annotated[Json | None, "the same of the evaluation and its trial"] = None
    changed: Annotated[Texts, "definitions of the trial that are not what it was trained with"]
    data: Annotated[Json | None, "what was read"] = None


class PlanLine(Record):
    """A line of `<name>.trials.jsonl` and of `manifest.jsonl`: a trial is planned."""

    trial: Key
    cell: Key
    seed: Int64
    grid: Text
    label: Text
    operator: Text
    axes: Annotated[Json, "axis -> value"]
    control: Annotated[Text | None, "kind of explanation of a control; null for other cells"] = None
    longer: Annotated[Key | None, "the cell that it trains longer; null for other cells"] = None
    experiment: Any = None
    spec: dict[str, Any]


class PlannedAxis(Record):
    """An axis of a grid."""

    name: Annotated[Text, "the column in grid_<name>"]
    path: Annotated[Text, "dotted path of the field that varies"]
    labels: Annotated[Texts, "labels of its levels"]
    tune: Annotated[Bool | None, "true for a nuisance axis: cells are compared at their own best level"] = None


class RecordedRow(Record):
    """The description of recorded values of one name."""

    title: str
    unit: str
    least: float | None = None


class ControlsOfGrid(Record):
    """The controls of a grid."""

    cells: dict[Key, str]
    of: dict[Key, list[Key]]
    missing: dict[Key, list[str]]


class LearnedLimit(Record):
    """The limit that a run of a grid reaches if it learned."""

    name: str
    point: dict[str, float]
    limit: float
    better: Literal["lower", "higher"]


class LongerCells(Record):
    """The cells of a grid that are trained longer."""

    factor: int
    of: dict[Key, Key]
    added: list[Key]


class Header(Record):
    """`grids/<name>.json`: a grid is planned."""

    grid: Text
    cells: Annotated[Int64, "how many"]
    trials: Annotated[Int64, "how many"]
    seeds: Annotated[list[Int64], SqlColumn("BIGINT[]"), "seeds of every cell"]
    axes: list[PlannedAxis]
    rules: Annotated[list[Any], SqlColumn("JSON", json_text), "what is left out, and why"]
    baseline: Annotated[Key | None, "key of the cell that the others are compared with; of several, the first"] = None
    baselines: dict[str, Key] | None = None
    matched: list[Any] | None = None
    measure: Annotated[Json | None, "what its cells are compared by: name, point, scale, better, rope"] = None
    base: Annotated[Json | None, "spec that the axes vary"] = None
    overrides: list[str] | None = None
    of: str | None = None
    rows: dict[str, RecordedRow] | None = None
    controls: ControlsOfGrid | None = None
    longer: LongerCells | None = None
    learned: LearnedLimit | None = None
    variance: Literal["own", "shared"] = "own"
    earlier_variances: list[str] | None = None


class Removal(Record):
    """`removals/<id>.json`: trials were removed, each with its last attempt."""

    trials: dict[Key, Int32]


class Progress(Record):
    """`heartbeat`: how far an attempt is. A wrong value counts as None, and hides no other."""

    step: int | None = None
    """The last one; None before the first."""
    steps: int | None = None
    loss: float | None = None
    """None if it is not finite."""
    idle_s: float | None = None
    """Seconds without progress of any kind: a step, or a batch of an evaluation."""
    step_s: float | None = None
    """Seconds that a step usually takes: the median of the latest."""

    @field_validator("*", mode="wrap")
    @classmethod
    def _drop_wrong(cls, value: object, check: ValidatorFunctionWrapHandler) -> object:
        with suppress(ValidationError):
            return check(value)
        return None

    @classmethod
    def of(cls, layout: Layout, trial: str, attempt: int) -> Self | None:
        """How far an attempt was at its last sign of life; None where it has not said, or it cannot be read."""
        path = layout.heartbeat(trial, attempt)
        try:
            return cls.check(parse_object(read_bytes(path), str(path)))
        except (OSError, StoreError):
            return None


class Annotation(Record):
    """A line of `notes.jsonl`: tags and a note on a trial or a grid."""

    trial: Key | None = None
    grid: str | None = None
    written: float
    add: list[Any]
    remove: list[Any]
    note: str | None = None
