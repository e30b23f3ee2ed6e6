"""Commands that query the store and write its tables: sql, export."""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ablate.grid.errors import EnvironmentProblem, NotFoundError, SpecError
from ablate.grid.suggestions import suggest_name
from ablate.runners.cli.cell_selection import find_cells, keep_cells
from ablate.runners.cli.cell_tables import format_page
from ablate.runners.cli.options import Campaign, Cells, Csv, Flag, Json, OneGrid, flag_group, require_one_format
from ablate.runners.cli.resolve import choose_grid, find_campaign, open_campaign, read_warnings
from ablate.runners.output import format_count, tell, write, write_frame, write_json, write_rows, write_table
from ablate.runners.result_stream import results
from ablate.store.files.atomic import environment_problem, write_atomic
from ablate.store.files.layout import Layout
from ablate.store.files.saved_texts import QUERIES, is_name

if TYPE_CHECKING:
    import polars as pl

    from ablate.store.store import Store


@flag_group
class Format:
    """How a result is shown.

    Parameters
    ----------
    md
        Print a Markdown table.
    parquet
        Write this Parquet file.
    """

    as_json: Json = False
    as_csv: Csv = False
    md: Flag = False
    parquet: Path | None = None

    def format_flags(self, silent: str | None = None) -> list[str]:
        """Return the flag that was given, if any. Raise SpecError for several, or one beside a `silent` option."""
        names = require_one_format(json=self.as_json, csv=self.as_csv, md=self.md, parquet=self.parquet is not None)
        if self.parquet is not None and not self.parquet.name:
            raise SpecError(f"--parquet {str(self.parquet)!r} names no file; give one")
        if silent and names and (silent, *names) != ("--saved", "--json"):
            raise SpecError(f"{names[0]} has no effect beside {silent}, which shows no result; leave {names[0]} out")
        return names


def sql(
    query: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    campaign: Campaign = None,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None,
    save: str | None = None,
    saved: Flag = False,
    shown: Format = Format(),
) -> int:
    """Answer one SQL query, or open harlequin without one.

    docs/sql.md lists tables and views.

    Parameters
    ----------
    query
        For example "select label, mean, n from v_cell_stats where name = 'mse' and point['sigma_f'] = 5 order by mean";
        the name of a saved query; or - to read one from stdin. Without a query, the SQL client harlequin opens.
    file
        Read the query from this file.
    save
        Keep the query under this name, and do not run it.
    saved
        List the saved queries.
    """
    from ablate.store.analysis.judge import conclude
    from ablate.store.store import Store

    formats = shown.format_flags("--saved" if saved else None if save is None else "--save")
    if saved and (query or file or save):
        raise SpecError("--saved and a query, -f or --save do not go together: it lists them; leave the others out")
    root = find_campaign(campaign)
    layout = Layout(root)
    if saved:
        _list_saved(layout, as_json=shown.as_json)
        return 0
    text = _read_query(layout, query, file, naming=save is not None)
    with Store.open(root, conclude=conclude) as store:
        if save is not None:
            store.sql(text or "", most=0)  # refuse an invalid query
            replaced = QUERIES.save(layout, save, text or "")
            tell(f"{'replaced' if replaced else 'saved'}; `ablate sql {save}` runs it")
            return 0
        warnings = read_warnings(store, quiet=shown.as_json)
        if text is None:
            return _open_harlequin(layout, formats)
        answer = _answer(store, text)
        _show(answer, shown, warnings)
    return 0


def _show(frame: "pl.DataFrame", shown: Format, warnings: Sequence[str]) -> None:
    from ablate.store.export.formats import encode

    if shown.parquet is not None:
        write_atomic(shown.parquet, encode(frame, "parquet"))
        tell(f"{format_count(frame.height, 'row')} in")
        write(str(shown.parquet.resolve()))
    elif shown.md:
        results().write(encode(frame, "md").decode())
    elif not (shown.as_json or shown.as_csv):
        write_rows(frame)
    else:
        write_frame("sql", frame, as_json=shown.as_json, as_csv=shown.as_csv, warnings=warnings)


def _open_harlequin(layout: Layout, formats: Sequence[str]) -> int:
    """Open harlequin, a SQL client for terminals, on the snapshot; return its exit code."""
    if formats:
        raise SpecError(f"{formats[0]} has no query; write one, the name of a saved one, -f FILE, or - for stdin")
    if not (sys.stdin.isatty() and results().isatty()):
        raise SpecError(
            "there is no query, and no terminal for one; write a query, a saved name, -f FILE, or - for stdin"
        )
    if find_spec("harlequin") is None:
        raise EnvironmentProblem(
            "harlequin is not installed, which `ablate sql` opens without a query; `pip install 'ablate[sql]'`, or "
            "write a query"
        )
    command = [sys.executable, "-m", "harlequin", "--read-only", str(layout.snapshot)]
    return subprocess.run(command, check=False, stdout=results().fileno()).returncode


def _answer(store: "Store", text: str) -> "pl.DataFrame":
    """Answer a query; on Ctrl-C, interrupt it."""
    with ThreadPoolExecutor(1) as thread:  # DuckDB ignores Ctrl-C while other threads of it compute
        answer = thread.submit(store.sql, text)
        try:
            while wait([answer], 0.1).not_done:
                pass
        except KeyboardInterrupt:
            store.interrupt()
            raise
        return answer.result()


def _read_query(layout: Layout, query: str | None, file: Path | None, *, naming: bool) -> str | None:
    """Return the text of the query; None without one. With --save, `query` is never the name of a saved one."""
    if query is not None and file is not None:
        raise SpecError(f"two queries: one on the command line and one in {file}; leave one out")
    if query is None and file is None:
        if naming:
            raise SpecError("--save has no query to keep; write it after the name, or use -f FILE")
        return None
    what = str(file) if file is not None else "what came on stdin" if query == "-" else "the query"
    try:
        text = file.read_text(encoding="utf-8") if file is not None else sys.stdin.read() if query == "-" else query
        str(text).encode()  # Python keeps bytes that are not UTF-8 as surrogates
    except UnicodeError as error:
        raise SpecError(f"{what} is not UTF-8 text; save it as UTF-8") from error
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {what}; -f takes a file that holds one SQL statement") from error
    except OSError as error:
        raise environment_problem("read", Path(what), error) from error
    if query is None or query == "-":
        return text
    if query.startswith("-") and len(query.split()) == 1:
        raise SpecError(f"`ablate sql` has no option {query}; `ablate sql --help` lists them")
    return QUERIES.text(layout, query) if not naming and is_name(query) else query


def _list_saved(layout: Layout, *, as_json: bool) -> None:
    queries = QUERIES.every(layout)
    if as_json:
        write_json("sql-saved", [{"name": name, "query": text.strip()} for name, text in queries.items()])
    elif queries:
        write_table(["name", "query"], [(name, " ".join(text.split())) for name, text in queries.items()])
    else:
        tell("no query is saved yet; `ablate sql --save NAME QUERY` keeps one")


@flag_group
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


def export(
    what: str,
    /,
    to: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *query: Cells,
    kind: Annotated[Literal["csv", "parquet", "tex", "md"] | None, Parameter(name="--format")] = None,
    campaign: Campaign = None,
    grid: OneGrid = None,
    page: ExportPage = ExportPage(),
) -> None:
    """Write a table as CSV, Parquet, LaTeX or Markdown, or runs for TensorBoard or W&B.

    docs/export.md shows examples.

    Parameters
    ----------
    what
        verdicts, cells, trials, metrics, evaluations, probes, items, or the name of a saved query. tensorboard and
        wandb write a directory of runs.
    to
        The file to write; its suffix sets the format: .csv, .parquet, .tex, .md. - writes to stdout and needs --format.
    kind
        The format, where the name does not say it.
    """
    from ablate.store.export.formats import FORMATS, format_of

    _require_table(what, query)
    if what in _TRACKERS:
        if Path(to).suffix.lstrip(".") in FORMATS:
            raise SpecError(f"--to {to!r} is a file, and {what} writes a directory of runs; name a directory")
        _export_runs(what, Path(to), campaign, grid)
        return
    _require_file(to, kind)
    suffix = kind or format_of(Path(to))
    is_page = what == "cells" and suffix in ("tex", "md")
    if page != ExportPage() and not is_page:
        raise SpecError(
            "--measure, --at or --spread is not for this export, but for cells on a page; write `ablate export cells "
            "--to FILE.tex`"
        )
    with open_campaign(campaign) as store:
        read_warnings(store)
        data = _encode_page(store, suffix, grid, query, page) if is_page else _encode(store, what, suffix, grid, query)
    if to == "-":
        results().write_bytes(data)
        return
    write_atomic(Path(to), data)
    tell("the table is")
    write(str(Path(to).resolve()))


def _require_table(what: str, query: Sequence[str]) -> None:
    from ablate.store.export.tables import TABLES

    if query and what not in TABLES:
        raise SpecError(
            f"the query {' '.join(query)!r} has no effect on {what!r}; leave it out, or export one of "
            f"{', '.join(TABLES)}"
        )


def _require_file(to: str, kind: str | None) -> None:
    if to == "-" and kind is None:
        raise SpecError("--to - has no ending that says the format; add --format csv, parquet, tex or md")
    if not Path(to).name:
        raise SpecError(f"--to {to!r} names no file; give one, or - for stdout")


_TRACKERS = {"tensorboard": "tensorboard --logdir {}", "wandb": "wandb sync {}/wandb/offline-run-*"}
"""Commands that read the runs, by tracker."""


def _export_runs(tracker: str, folder: Path, campaign: Path | None, grid: str | None) -> None:
    from ablate.grid.optional_packages import require_package
    from ablate.store.export.tensorboard import write_tensorboard
    from ablate.store.export.wandb_offline import write_wandb

    require_package(tracker, by=f"`ablate export {tracker}`", extra=tracker)
    with open_campaign(campaign) as store:
        read_warnings(store)
        write_runs = write_tensorboard if tracker == "tensorboard" else write_wandb
        runs = write_runs(store, choose_grid(store, grid), folder)
    tell(f"{format_count(runs, 'run')} for `{_TRACKERS[tracker].format(folder)}`")
    write(str(folder.resolve()))


def _encode(store: "Store", what: str, kind: str, grid: str | None, query: Sequence[str]) -> bytes:
    from ablate.store.analysis.trial_query import select_planned
    from ablate.store.export.formats import encode
    from ablate.store.export.tables import MEASUREMENTS, TABLES, rows

    if what in TABLES:
        name = choose_grid(store, grid)
        frame = rows(store, name, what)
        if query and (what == "trials" or what in MEASUREMENTS):
            keys = {key for grid_of, key in select_planned(store, query) if grid_of == name}
            return encode(frame.filter(frame["trial"].is_in(keys)), kind)
        shown = keep_cells(store, name, frame, query)
        if what == "verdicts" and kind in ("tex", "md"):  # a page has no room for all columns
            return _encode_verdicts(store, name, kind, frame, shown)
        return encode(shown, kind)
    saved = QUERIES.every(store.layout)
    if what not in saved:
        known = [*TABLES, *saved]
        raise NotFoundError(f"there is no table {what!r}; there are {', '.join(known)}{suggest_name(what, known)}")
    return encode(store.sql(saved[what]), kind)


def _encode_verdicts(store: "Store", grid: str, kind: str, verdicts: "pl.DataFrame", shown: "pl.DataFrame") -> bytes:
    from ablate.store.analysis.noise_caution import noise_caution
    from ablate.store.analysis.verdicts import baseline_rows, compared_runs, measure_of
    from ablate.store.export import latex, markdown
    from ablate.store.export.formats import escape_number

    measure = measure_of(store, grid, None)
    bases = baseline_rows(compared_runs(store, grid, measure), measure)
    headings, rows, caption = format_page(store, store.grid(grid), verdicts, shown, bases)
    noise = noise_caution(store, grid)
    cautions = [f"{each[0].upper()}{each[1:]}." for each in (noise.caution, noise.standing) if each]
    caption = " ".join([caption, *cautions])
    escape = latex.escape if kind == "tex" else markdown.escape
    cells = [[escape(row[0]), *(escape_number(cell, kind) for cell in row[1:-1]), escape(row[-1])] for row in rows]
    table = [*map(escape, headings)], cells, [False, *[True] * (len(headings) - 2), False]
    text = latex.table(*table, escape(caption)) if kind == "tex" else f"{markdown.table(*table)}\n{escape(caption)}\n"
    return text.encode()


def _encode_page(store: "Store", kind: str, grid: str | None, query: Sequence[str], page: ExportPage) -> bytes:
    from ablate.store.export.cells import cells, latex_cells, markdown_cells

    point = {}
    for word in page.at:
        name, _, value = word.partition("=")
        try:
            point[name] = float(value)
        except ValueError as error:
            raise SpecError(f"--at {word!r} is no coordinate and value; write such as sigma_x=1") from error
    chosen = choose_grid(store, grid)
    only = find_cells(store, chosen, query) if query else None
    table = cells(store, chosen, page.measure, point, page.spread, only)
    return (latex_cells if kind == "tex" else markdown_cells)(table).encode()
