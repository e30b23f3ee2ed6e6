"""The cells of the papers' tables, read from the package's own file.

`tables.json` is laid out like the papers: tables of rows of printed texts. Facts of a cell are given at its table,
its row, its column or, where neither can tell, at itself; the nearer one counts.
"""

import json
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, final

from ablate.grid.errors import NotFoundError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

Fact = Mapping[str, Any]

_PROXY = "*"
_NO_NUMBER = "-"
_SPREAD = " ± "
_QUANTILE = 1.959964  # two-sided 95 % of the normal distribution


@final
@dataclass(frozen=True, kw_only=True)
class PublishedCell:
    """One cell of a table; the fields are the columns of the table `published`."""

    id: int
    paper: str
    paper_table: str
    row_label: str
    column_label: str
    printed: str
    value: float | None
    unit: str
    better: Literal["lower", "higher"] | None = None
    scale: Literal["log", "linear"]
    uncertainty: float | None = None
    uncertainty_is: str | None = None
    n_seeds: int | None = None
    items: int | None = None
    binomial_se: float | None = None
    metric: str
    measurement: str | None = None
    point: Mapping[str, float] = field(default_factory=dict)
    factor: float = 1.0
    operator: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    baseline: bool = False
    placement: str | None = None
    model: str
    parameters: float | None = None
    data: str | None = None
    tokens: float | None = None
    steps: int | None = None
    task: str | None = None
    setup: Mapping[str, str] = field(default_factory=dict)
    caption: str
    mark: str | None = None
    notes: tuple[int, ...] = ()
    trust: str | None = None
    unusable: bool = False


class Note(NamedTuple):
    """An inconsistency of a paper; the fields are the columns of the table `published_note`."""

    note: int
    paper: str
    place: str
    text: str
    unusable: bool
    cells: int


class Made(NamedTuple):
    """The fields of an operator's spec in the papers; they are those of `published_operator`."""

    operator: str
    arguments: Mapping[str, str]
    kinds: Mapping[str, str]  # which operator it is: JSON path -> JSON text
    numbers: Mapping[str, str]  # that it has these arguments


_PLACE: Final = files("ablate.store.published").joinpath("tables.json")


@cache
def _file() -> dict[str, Any]:
    return dict(json.loads(_PLACE.read_bytes()))


def file_hash() -> str:
    """blake2b-128 of the file, 32 hexadecimal digits."""
    return blake2b(_PLACE.read_bytes(), digest_size=16).hexdigest()


def papers() -> Mapping[str, str]:
    """Titles by number."""
    return dict(_file()["papers"])


@cache
def cells() -> tuple[PublishedCell, ...]:
    """Every cell, table by table, row by row."""
    rows = []
    for number, facts in enumerate(_read_cells()):
        told = {at: note for at, note in enumerate(_file()["notes"], start=1) if _concerns(note, facts)}
        unusable = any(note["unusable"] for note in told.values())
        rows.append(PublishedCell(id=number, **facts, notes=tuple(told), trust=trust_of(told), unusable=unusable))
    return tuple(rows)


@cache
def notes() -> tuple[Note, ...]:
    """An inconsistency in the papers, and the number of its cells."""
    rows = []
    for number, each in enumerate(_file()["notes"], start=1):
        of = sum(number in cell.notes for cell in cells())
        rows.append(Note(number, each["paper"], each["place"], each["text"], each["unusable"], of))
    return tuple(rows)


@cache
def operators() -> tuple[Made, ...]:
    """Every operator that a table names, with the arguments it is run with."""
    rows = []
    for each in _file()["operators"]:
        both = {**_file()["softmax"], **each["kinds"]}
        kinds = {path: text for path, text in both.items() if path not in each["numbers"]}
        rows.append(Made(each["operator"], each["arguments"], kinds, each["numbers"]))
    return tuple(rows)


def _read_cells() -> Iterator[dict[str, Any]]:
    for table in _file()["tables"]:
        place = {"paper": table["paper"], "paper_table": table["table"], "caption": table["caption"]}
        for row in table["rows"]:
            for column, entry in zip(table["columns"], row["cells"], strict=True):
                printed, own = (entry, {}) if isinstance(entry, str) else entry
                known = {**table["of"], **row["of"], **column["of"], **own}
                labels = {"row_label": row["label"], "column_label": column["label"]}
                yield {**place, **labels, **known, **_numbers(printed, known)}


def _numbers(printed: str, known: Fact) -> dict[str, Any]:
    """Parse printed numbers; add a binomial error for a percentage of a known number of items."""
    text, _, error = printed.partition(_SPREAD)
    value = None if text == _NO_NUMBER else float(text.removesuffix(_PROXY))
    share, items = (value or 0) / 100, known.get("items")
    binomial = None if value is None or items is None else 100 * math.sqrt(share * (1 - share) / (items - 1))
    return {"printed": printed, "value": value, "uncertainty": float(error) if error else None, "binomial_se": binomial}


def trust_of(numbers: Iterable[int]) -> str | None:
    """The words of the notes with these numbers; None without any."""
    told = [_file()["notes"][number - 1] for number in numbers]
    return "; ".join(f"{each['place']}: {each['text']}" for each in told) or None


def _concerns(note: Fact, facts: Fact) -> bool:
    return note["paper"] == facts["paper"] and any(
        part["table"] == facts["paper_table"]
        and facts["row_label"] in part.get("rows", [facts["row_label"]])
        and facts["column_label"] in part.get("columns", [facts["column_label"]])
        for part in note["cells"]
    )


def chosen(paper: str | None = None, table: str | None = None, metric: str | None = None) -> tuple[PublishedCell, ...]:
    """The cells of a paper ("003", "3"), a table ("T1", "1") and a metric, by name or part of the paper's own words."""
    kept: Sequence[PublishedCell] = cells()
    if paper is not None:
        number = _number(paper)
        kept = [each for each in kept if each.paper == number]
        if not kept:
            raise NotFoundError(f"paper {number} has no table of values: {papers()[number]} publishes no results")
    if table is not None:
        wanted = f"T{table.upper().removeprefix('TABLE').removeprefix('T')}"
        known = list(dict.fromkeys(each.paper_table for each in kept))
        kept = [each for each in kept if wanted in (each.paper_table.upper(), each.paper_table.partition("-")[0])]
        if not kept:
            of = "the papers have" if paper is None else f"paper {_number(paper)} has"
            raise NotFoundError(f"{of} no table {table!r} of values; there are {', '.join(known) or 'none'}")
    if metric is not None:
        named = [each for each in kept if each.measurement == metric]
        of_metric = named or [each for each in kept if metric.casefold() in each.metric.casefold()]
        if not of_metric:
            known = list(dict.fromkeys(each.measurement or each.metric for each in kept))
            listed = some(known, 8)
            raise NotFoundError(f"no table asked for has {metric!r}; they have {listed}{suggest_name(metric, known)}")
        kept = of_metric
    return tuple(kept)


def _number(paper: str) -> str:
    number = paper.zfill(3)
    if number not in papers():
        known = "; ".join(f"{each} {title}" for each, title in papers().items())
        raise NotFoundError(f"there is no paper {paper!r}; there are {known}")
    return number


def fill(connection: "duckdb.DuckDBPyConnection") -> None:
    """Insert every published cell, note and operator, and which version of them this is, into empty tables."""
    for table, rows in (("published", cells()), ("published_note", notes()), ("published_operator", operators())):
        connection.register("rows_to_insert", _columns(rows))
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM rows_to_insert")
        connection.unregister("rows_to_insert")
    connection.execute(
        "INSERT INTO meta VALUES ('published_version', $version), ('published_hash', $hash)",
        {"version": str(_file()["version"]), "hash": file_hash()},
    )


def _columns(rows: Sequence[PublishedCell] | Sequence[Note] | Sequence[Made]) -> "pa.Table":
    import pyarrow as pa  # slow to import, and needed for a new database alone

    columns = {}
    for name in type(rows[0]).__annotations__:
        values = [getattr(row, name) for row in rows]
        if isinstance(values[0], Mapping):
            kind = pa.map_(pa.string(), pa.float64() if name == "point" else pa.string())
            columns[name] = pa.array([sorted(each.items()) for each in values], kind)
        else:
            columns[name] = pa.array(values)
    return pa.table(columns)


class PublishedClaim(NamedTuple):
    """Two cells of one table."""

    cell: PublishedCell
    base: PublishedCell

    @property
    def words(self) -> str:
        """The label of the claim: `SSA against Softmax · 5`."""
        cell, base = self.cell, self.base
        if base.row_label != cell.row_label:
            return f"{cell.row_label} against {base.row_label} · {cell.column_label}"
        return f"{cell.column_label} against {base.column_label} · {cell.row_label}"

    @property
    def difference(self) -> float | None:
        """Cell less baseline in the printed unit, on the log scale of logarithms; None where a number is missing."""
        value, base = self.cell.value, self.base.value
        if value is None or base is None:
            return None
        if self.cell.scale == "linear":
            return value - base
        return math.log(value) - math.log(base) if value > 0 and base > 0 else None

    @property
    def noise(self) -> float | None:
        """Half of a 95 % interval of the difference over test items, unpaired; None where no error is known."""
        errors = [_error(self.cell), _error(self.base)]
        if self.cell.scale == "log" or errors[0] is None or errors[1] is None:
            return None
        return _QUANTILE * math.hypot(errors[0], errors[1])


def claims(chosen: Iterable[PublishedCell]) -> list[PublishedClaim]:
    """The claims of the cells that are `chosen`, in their order."""
    bases = {_compared_by(each): each for each in cells() if each.baseline}
    return [
        PublishedClaim(each, bases[_compared_by(each)])
        for each in chosen
        if each.operator is not None and not each.baseline and _compared_by(each) in bases
    ]


def _compared_by(cell: PublishedCell) -> Hashable:
    point, setup = tuple(sorted(cell.point.items())), tuple(sorted(cell.setup.items()))
    return cell.paper, cell.paper_table, cell.metric, point, cell.model, setup


def _error(cell: PublishedCell) -> float | None:
    return cell.uncertainty if cell.uncertainty is not None else cell.binomial_se
