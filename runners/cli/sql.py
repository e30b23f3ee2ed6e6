"""The command `sql`: answer a query, or open a SQL client on the snapshot."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

from cyclopts import Parameter

from grid.errors import EnvironmentProblem, NotFoundError, SpecError
from runners.cli.options import Campaign, Csv, Flag, Json, say_warnings
from runners.output import format_count, say, write, write_frame, write_json, write_table

if TYPE_CHECKING:
    import polars as pl

    from store.files.layout import Layout
    from store.store import Store


@final
@dataclass(frozen=True)
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

    def format_flag(self) -> str | None:
        """Return the format flag that was given, or None. Raises SpecError for several."""
        flags = {"--json": self.as_json, "--csv": self.as_csv, "--md": self.md, "--parquet": self.parquet is not None}
        found = [name for name, asked in flags.items() if asked]
        if len(found) > 1:
            raise SpecError(f"a result has one format; got {' and '.join(found)}: leave one out")
        if self.parquet is not None and not self.parquet.name:
            raise SpecError(f"--parquet takes the name of a file; got {str(self.parquet)!r}")
        return found[0] if found else None


Shown = Annotated[Format, Parameter(name="*")]
"""Flattened."""

ON_SCREEN = Format()


def sql(
    query: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    campaign: Campaign = None,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None,
    save: str | None = None,
    saved: Flag = False,
    shown: Shown = ON_SCREEN,
) -> int:
    """Answer one SQL query, or open harlequin without one; docs/sql.md lists tables and views.

    Parameters
    ----------
    query
        For example "select label, mean, n from v_cell_stats where name = 'mse'"; the name of a saved query; or - to
        read one from stdin. Without a query, the SQL client harlequin opens.
    file
        Read the query from this file.
    save
        Keep the query under this name, and do not run it.
    saved
        List the saved queries.
    shown
        How the result is shown; one of these.
    """
    from runners.cli.resolve import find_campaign
    from store.files.layout import Layout
    from store.store import Store

    given = shown.format_flag()
    if saved:
        _refuse_beside("--saved", given if given != "--json" else None, query, file, save)
    elif save is not None:
        _refuse_beside("--save", given)
    root = find_campaign(campaign)
    layout = Layout(root)
    if saved:
        return _list(layout, as_json=shown.as_json)
    text = _text(layout, query, file, naming=save is not None)
    with Store.open(root) as store:
        if save is not None:
            return _save(store, layout, save, text)
        warnings = store.warnings() if shown.as_json else say_warnings(store)
        if text is not None:
            _print(store.sql(text), shown, warnings)
            return 0
    return _open_harlequin(layout, given)


def _refuse_beside(
    flag: str, given: str | None, query: str | None = None, file: Path | None = None, save: str | None = None
) -> None:
    """Refuse what `flag` would ignore."""
    named = {given or "": given, f"the query {query!r}": query, f"-f {file}": file, f"--save {save}": save}
    ignored = [name for name, value in named.items() if value is not None]
    if ignored:
        raise SpecError(f"{flag} shows no result; leave out {' and '.join(ignored)}")


def _open_harlequin(layout: "Layout", given: str | None) -> int:
    """Open harlequin, a SQL client for terminals, on the snapshot; return its exit code."""
    if given is not None:
        raise SpecError(f"{given} needs a query; write one, the name of a saved one, -f FILE, or - for stdin")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise SpecError("without a query, a terminal is needed; write a query, a saved name, -f FILE, or - for stdin")
    if find_spec("harlequin") is None:
        raise EnvironmentProblem(
            "`ablate sql` without a query opens harlequin, which is not installed; "
            "`pip install 'ablate[sql]'`, or write a query"
        )
    command = [sys.executable, "-m", "harlequin", "--read-only", str(layout.snapshot)]
    return subprocess.run(command, check=False).returncode


def _text(layout: "Layout", query: str | None, file: Path | None, *, naming: bool) -> str | None:
    """Return the text of the query; None without one. With --save, `query` is never the name of a saved one."""
    from store.files.saved_texts import QUERIES, is_name

    if query is not None and file is not None:
        raise SpecError(f"one query at a time; got one on the command line and the file {file}")
    if file is not None:
        return _read(file)
    if query == "-":
        try:
            return _utf8(sys.stdin.read(), "what came on stdin")
        except UnicodeDecodeError as error:
            raise SpecError("what came on stdin is not UTF-8 text") from error
    if query is not None:
        _utf8(query, "the query")
    if query is not None and query.startswith("-") and len(query.split()) == 1:
        raise SpecError(f"`ablate sql` has no option {query}; `ablate sql --help` lists them")
    if query is None and naming:
        raise SpecError("--save NAME needs the query to keep; write it after the name, or use -f FILE")
    return QUERIES.text(layout, query) if query is not None and not naming and is_name(query) else query


def _utf8(text: str, what: str) -> str:
    """`text`, unless some of its bytes were no UTF-8: Python keeps such ones as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{what} is not UTF-8 text: see the character {error.start + 1}") from error
    return text


def _read(file: Path) -> str:
    from store.files.atomic import environment_problem

    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {file}; -f takes a file that holds one SQL statement") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{file} is not UTF-8 text; -f takes a file that holds one SQL statement") from error
    except OSError as error:
        raise environment_problem("read", file, error) from error


def _list(layout: "Layout", *, as_json: bool) -> int:
    from store.files.saved_texts import QUERIES

    found = QUERIES.every(layout)
    if as_json:
        write_json("sql-saved", [{"name": name, "query": text.strip()} for name, text in found.items()])
    elif found:
        write_table(["name", "query"], [(name, " ".join(text.split())) for name, text in found.items()])
    else:
        say("ablate: no query is saved yet; `ablate sql --save NAME QUERY` keeps one")
    return 0


def _save(store: "Store", layout: "Layout", name: str, text: str | None) -> int:
    from store.files.saved_texts import QUERIES

    store.sql(text or "", most=0)  # refuse an invalid query
    replaced = QUERIES.save(layout, name, text or "")
    say(f"ablate: {'replaced' if replaced else 'saved'}; `ablate sql {name}` runs it")
    return 0


def _print(found: "pl.DataFrame", shown: Format, warnings: Sequence[str]) -> None:
    from store.export.formats import encode
    from store.files.atomic import write_atomic

    if shown.parquet is not None:
        write_atomic(shown.parquet, encode(found, "parquet"))
        say(f"ablate: {format_count(found.height, 'row')} in")
        write(str(shown.parquet.resolve()))
    elif shown.md:
        sys.stdout.write(encode(found, "md").decode())
    else:
        write_frame("sql", found, as_json=shown.as_json, as_csv=shown.as_csv, warnings=warnings)
