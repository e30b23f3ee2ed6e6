"""The command `export`: tables for papers and for other programs."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, final

from cyclopts import Parameter

from grid.errors import NotFoundError, SpecError
from runners.cli.options import Campaign, OneGrid, say_warnings
from runners.output import format_count, say, write

if TYPE_CHECKING:
    from store.store import Store

_ON_A_PAGE = {
    "label": "cell",
    "pairs": "pairs",
    "value": "value",
    "percent": "difference %",
    "p_holm": "p (Holm)",
    "verdict": "verdict",
}
"""Columns of the verdicts that a page has room for; files for programs have all."""


@final
@dataclass(frozen=True)
class ExportPage:
    """Options of the table of cells on a page (.tex, .md).

    Parameters
    ----------
    measure
        A measurement, at all its points; repeat it for more. accuracy:higher says which way is good. Default the
        grid's measure at its own point.
    at
        Only points with this coordinate, such as sigma_x=1; repeat it for more.
    spread
        What follows the plus-minus: half the interval of the mean over seeds, or their standard deviation.
    """

    measure: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    at: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    spread: Literal["interval", "sd"] = "interval"

    def point(self) -> dict[str, float]:
        """The coordinates that were asked for. Raises SpecError for what is none."""
        found = {}
        for word in self.at:
            name, _, value = word.partition("=")
            try:
                found[name] = float(value)
            except ValueError as error:
                raise SpecError(f"--at takes a coordinate and its value, such as sigma_x=1; got {word!r}") from error
        return found


Pages = Annotated[ExportPage, Parameter(name="*")]
"""Flattened."""

PLAIN = ExportPage()


def export(
    what: str,
    /,
    to: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *,
    kind: Annotated[Literal["csv", "parquet", "tex", "md"] | None, Parameter(name="--format")] = None,
    campaign: Campaign = None,
    grid: OneGrid = None,
    page: Pages = PLAIN,
) -> int:
    """Write a table as CSV, Parquet, LaTeX or Markdown, or runs for TensorBoard; docs/export.md says what is in each.

    Parameters
    ----------
    what
        verdicts, cells, trials, metrics, evaluations, probes, items, or the name of a saved query. tensorboard writes a
        directory of event files.
    to
        The file; its name says the format: .csv, .parquet, .tex, .md. Or - for stdout, with --format.
    kind
        The format, where the name does not say it.
    page
        What a page shows.
    """
    from runners.cli.cancellable import cancellable
    from runners.cli.resolve import open_campaign
    from store.export.formats import format_of

    if what == "tensorboard":
        return _export_runs(Path(to), campaign, grid)
    if to == "-" and kind is None:
        raise SpecError("stdout has no name that says the format; add --format csv, parquet, tex or md")
    if not Path(to).name:
        raise SpecError(f"--to takes the name of a file, or - for stdout; got {to!r}")
    asked = kind or format_of(Path(to))
    if page != PLAIN and not (what == "cells" and asked in ("tex", "md")):
        raise SpecError(
            "--measure, --at and --spread are for cells on a page; write `ablate export cells --to FILE.tex`"
        )
    with open_campaign(campaign) as store:
        say_warnings(store)
        data = cancellable(store, lambda: _encode(store, what, asked, grid, page))
    _write_output(to, data)
    return 0


def _export_runs(folder: Path, campaign: Campaign, grid: OneGrid) -> int:
    from runners.cli.resolve import choose_grid, open_campaign
    from runners.tasks.optional_packages import require_package
    from store.export.tensorboard import write_tensorboard

    require_package("tensorboard", by="`ablate export tensorboard`", extra="tensorboard")
    with open_campaign(campaign) as store:
        say_warnings(store)
        found = write_tensorboard(store, choose_grid(store, grid), folder)
    say(f"ablate: {format_count(found, 'run')} for `tensorboard --logdir {folder}`")
    write(str(folder.resolve()))
    return 0


def _write_output(to: str, data: bytes) -> None:
    from store.files.atomic import write_atomic

    if to == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    write_atomic(Path(to), data)
    say("ablate: the table is")
    write(str(Path(to).resolve()))


def _encode(store: "Store", what: str, kind: str, grid: str | None, page: ExportPage) -> bytes:
    from runners.cli.resolve import choose_grid
    from store.export.cells import cells, latex_cells, markdown_cells
    from store.export.formats import encode
    from store.export.tables import TABLES, rows

    if what not in TABLES:
        return encode(store.sql(_query(store, what)), kind)
    name = choose_grid(store, grid)
    if what == "cells" and kind in ("tex", "md"):
        table = cells(store, name, page.measure, page.point(), page.spread)
        return (latex_cells if kind == "tex" else markdown_cells)(table).encode()
    found = rows(store, name, what)
    if what == "verdicts" and kind in ("tex", "md"):
        found = found.select(list(_ON_A_PAGE)).rename(_ON_A_PAGE)
    return encode(found, kind)


def _query(store: "Store", what: str) -> str:
    from grid.suggestions import suggest_name
    from store.export.tables import TABLES
    from store.files.saved_texts import QUERIES, is_name

    saved = QUERIES.every(store.layout)
    if not is_name(what) or what not in saved:
        known = [*TABLES, *saved]
        raise NotFoundError(f"there is no table {what!r}; there are {known}{suggest_name(what, known)}")
    return saved[what]
