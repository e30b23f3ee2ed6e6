"""The command `published`: what the papers' tables say, alone or beside a grid's own results."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

from cyclopts import Parameter

from grid.errors import SpecError
from runners.cli.options import Csv, Flag, Json, say_warnings
from runners.output import write_frame, write_json

if TYPE_CHECKING:
    pass


@final
@dataclass(frozen=True)
class PublishedQuery:
    """Which published cells.

    Parameters
    ----------
    paper
        A paper, such as 003; default all.
    table
        One of its tables, such as T1.
    metric
        A measurement, such as mse, or part of the paper's words for what it measured.
    """

    paper: str | None = None
    table: str | None = None
    metric: str | None = None


@final
@dataclass(frozen=True)
class ComparisonFlags:
    """Results to compare with.

    Parameters
    ----------
    compare
        Put what the papers claim of an operator beside what a grid of yours found.
    grid
        With --compare: the grid, when the campaign has several.
    campaign
        With --compare: the campaign directory; default the only one below campaigns/.
    everything
        With --compare: also the claims that cannot be compared, each with the reason.
    """

    compare: Flag = False
    grid: str | None = None
    campaign: Path | None = None
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False


def published(
    asked: Annotated[PublishedQuery, Parameter(name="*")] = PublishedQuery(),
    *,
    beside: Annotated[ComparisonFlags, Parameter(name="*")] = ComparisonFlags(),
    as_json: Json = False,
    as_csv: Csv = False,
) -> int:
    """Show published tables, the cells of one, or your results for the papers' claims."""
    if as_json and as_csv:
        raise SpecError("a result has one format; got --json and --csv: leave one out")
    if beside.compare:
        _compare(asked, beside, as_json=as_json, as_csv=as_csv)
        return 0
    if beside != ComparisonFlags():
        raise SpecError("--grid, --campaign and --all belong to a comparison; add --compare")
    from runners.cli.published_text import flat, write_cells, write_tables
    from store.published.tables import chosen

    cells = chosen(asked.paper, asked.table, asked.metric)
    if as_json:
        write_json("published", [asdict(each) for each in cells])
    elif as_csv:
        write_frame("published", flat(cells), as_json=False, as_csv=True)
    elif asked == PublishedQuery():
        write_tables(cells)
    else:
        write_cells(cells)
    return 0


def _compare(asked: PublishedQuery, beside: ComparisonFlags, *, as_json: bool, as_csv: bool) -> None:
    from runners.cli.published_text import write_claims
    from runners.cli.resolve import choose_grid, open_campaign
    from store.analysis.published_comparison import compare_published

    with open_campaign(beside.campaign) as store:
        grid = choose_grid(store, beside.grid)
        warnings = store.warnings(grid) if as_json else say_warnings(store, grid)
        found = compare_published(store, grid, paper=asked.paper, table=asked.table, metric=asked.metric)
    if as_json or as_csv:
        write_frame("published-compare", found, as_json=as_json, as_csv=as_csv, warnings=warnings)
    else:
        write_claims(found, everything=beside.everything)
