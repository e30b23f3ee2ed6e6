"""The page Published: a table or figure of a paper beside one's own results, and what is to be known of both."""

from collections.abc import Mapping, Sequence
from typing import Final

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.app.address import Address
from ablate.dashboards.app.page import (
    AS_ABOVE,
    AppPage,
    Component,
    Control,
    Key,
    PageView,
    Slot,
    SlotContent,
    grid_of,
    html,
    memoise,
)
from ablate.dashboards.app.table_columns import columns
from ablate.dashboards.data.formatting import change, count
from ablate.dashboards.data.seed_averages import Scale
from ablate.dashboards.data.user_errors import require
from ablate.dashboards.figures.canvas import value_axis
from ablate.dashboards.figures.table import Sheet, TableText, table_sheet
from ablate.grid.names import some
from ablate.papers.figures import paper_tables
from ablate.papers.figures.item import Drawn, Item
from ablate.papers.figures.items import ITEMS
from ablate.papers.matching.published_comparison import WORDS, compare_published
from ablate.papers.results.result_files import find_published
from ablate.store.published.tables import Note, PublishedCell, chosen as filter_published, claims, notes, papers

_MOST_OF_ROW: Final = 2  # reasons for a row without a value


class PublishedAddress(Address):
    """The grid, the paper, and its item."""

    paper: str | None = None  # a number such as "003"; None is that of which the grid has most
    item: str | None = None
    """A name such as "table 1"; None is the table of which the grid has most, else the paper's first."""


def chosen_item(view: PageView) -> Item:
    """Read the choices of a view. Raises Unknown if there is no grid, paper or item."""
    paper, name, most = view.address.paper, view.address.item, _most(view)
    if paper is None:
        paper = most[0][0] if most else next(iter(papers()))
    require("the list of papers", "paper", paper, papers())
    items = {each.name: each for each in ITEMS if each.paper == paper}
    if name is not None:
        return items[require(f"paper {paper}", "item", name, items)]
    tables = [table.partition("-")[0].removeprefix("T") for of, table in most if of == paper]
    first = next(each for each in items.values() if each.kind == "table")
    return items[f"table {tables[0]}"] if tables else first


def _has_no_values(chosen: Item) -> bool:
    return chosen.kind == "figure" or chosen.number is None


@memoise
def _most(view: PageView) -> list[tuple[str, str]]:
    """Rank tables with values of the grid beside theirs: paper and table.

    The table of which most rows have one comes first; rows of one operator at several sizes count once.
    """
    tables = view.store.sql(
        "SELECT paper, paper_table FROM v_published WHERE grid = $grid AND NOT unusable GROUP BY paper, paper_table "
        "ORDER BY count(DISTINCT (operator, arguments, placement)) DESC, count(DISTINCT (setup, row_label)) DESC, "
        "count(DISTINCT id) DESC, paper, paper_table",
        {"grid": grid_of(view).grid},
    )
    return [(str(paper), str(table)) for paper, table in tables.iter_rows()]


@memoise
def _tell_choice(view: PageView) -> str:
    """Say that no table has a value of the grid, and which other grids have, if the address names no table."""
    if view.address.paper is not None or view.address.item is not None or _most(view):
        return ""
    others = view.store.sql("SELECT DISTINCT grid FROM v_published WHERE NOT unusable ORDER BY grid")["grid"].to_list()
    where = f"; {some(others, 3)} {'has' if len(others) == 1 else 'have'}" if others else ""
    return f"No table has a value of this grid beside one of its own{where}. Choose one above to see what it prints."


def _show_item(view: PageView) -> SlotContent:
    if nothing := _tell_choice(view):
        return SlotContent(message=nothing)
    chosen, context = chosen_item(view), grid_of(view)
    drawn = chosen.make(context)
    above = f"{papers()[chosen.paper]}, {chosen.name}: {chosen.shows}."
    files = {"tex": lambda: drawn.latex} if drawn.latex else {}
    if _has_no_values(chosen):
        return _draw_item(view, chosen, drawn)._replace(files=files, above=above)
    printed = _find_printed(view)
    data = paper_tables.compare_with_printed(paper_tables.frame(context, printed), printed, _compare_claims(view))
    cells = _cells_of(chosen)
    caption = (
        f"Above in each place: what the paper prints. Below: your own runs. {paper_tables.own_words(context, cells)} "
        "Then: your mean less the printed value (their ratio if the table spans decades), where the printed value lies "
        "beside your interval, and what Claims says. The two are of other models, data and budgets, and the noise of a "
        "printed value is unknown. Bold: own cells that are not shown to be worse than the best."
    )
    sheet = table_sheet(data, paper_tables.columns_of(cells))
    trained = {row for row, each in zip(data["row"], printed, strict=True) if each.cell.operator is not None}
    missing = _missing_rows(data)
    lead = _lead_to_results(chosen, context.grid)
    missing |= {row: f"{missing[row]}; {lead}" for row in missing if lead and row in trained}
    have = data.height - data["mean"].null_count()
    if not have:
        sheet = sheet._replace(legend=[mark for mark in sheet.legend if mark[0] != "–"])
    has = "has" if have == 1 else "have"
    answer = f"{have or 'None'} of {count(data.height, 'printed value')} {has} a value of yours beside"
    parts = [_table(sheet, _bands(data), missing, own=have > 0)]
    shown = SlotContent(
        caption=caption if have else "What the paper prints.",
        data=data.rename(_OWN),
        parts=parts,
        files=files,
        answer=f"{answer} them.",
    )
    return shown._replace(above=above)


def _draw_item(view: PageView, chosen: Item, drawn: Drawn) -> SlotContent:
    """Show a figure, or the design table, of the grid's runs; printed values are hollow marks."""
    figure, caption, data = drawn.figure, drawn.caption, drawn.data
    if figure is not None and chosen.printed is not None:
        marks = paper_tables.overlaid(grid_of(view), chosen)
        if not marks.is_empty():
            figure, caption = _add_marks(figure, marks, data), f"{caption} Hollow: printed in {chosen.printed.words}."
            data = pl.concat([data, marks], how="diagonal_relaxed")
    legend = [Key(each.style, each.name, each.group or key) for key, each in drawn.legend.items()]
    parts = [_table(drawn.sheet, {})] if drawn.sheet is not None else []
    return SlotContent(figure, caption, data, legend, drawn.message, parts=parts)


def _add_marks(figure: go.Figure, marks: pl.DataFrame, data: pl.DataFrame) -> go.Figure:
    ends = pl.concat([data.select("value", "low", "high"), marks.select("value")], how="diagonal")
    scale: Scale = "log" if figure.layout.yaxis.type == "log" else "linear"
    figure.update_layout(yaxis=value_axis(ends, scale))
    for (key,), rows in marks.group_by("key", maintain_order=True):
        figure.add_trace(
            go.Scatter(
                x=rows["x"].to_list(),
                y=rows["value"].to_list(),
                mode="markers",
                legendgroup=str(key),
                marker={"symbol": "circle-open", "size": 11, "color": rows["color"][0], "line": {"width": 2}},
                text=rows["printed"].to_list(),
                hovertemplate="%{x}: printed %{text}<extra></extra>",
                showlegend=False,
            )
        )
    return figure


@memoise
def _find_printed(view: PageView) -> list[paper_tables.Beside]:
    return paper_tables.pair_with_own(grid_of(view), _cells_of(chosen_item(view)))


@memoise
def _compare_claims(view: PageView) -> pl.DataFrame:
    """Say if the grid agrees with the claims of a table; empty if the table makes none."""
    chosen = chosen_item(view)
    return compare_published(view.store, grid_of(view).grid, paper=chosen.paper, table=f"T{chosen.number}")


_OWN: Final = {
    **{name: f"own_{name}" for name in ("mean", "spread", "low", "high", "n", "planned", "cell", "best")},
    "difference": "own_less_printed",
    "band": "printed_in_own_interval",
    "word": "claim_word",
}
"""Names in files, where nothing else says whose the numbers are; those of the view `v_published` where it has them."""


def _bands(data: pl.DataFrame) -> Mapping[tuple[str, str], Sequence[str]]:
    """Write the lines below the grid's own values, by row and column."""
    bands = {}
    for row in data.drop_nulls("difference").iter_rows(named=True):
        band = f"printed {row['band']}" if row["band"] else ""
        claim = f"against the baseline: {row['word']}" if row["word"] else ""
        lines = ", ".join(filter(None, (change(row["difference"], row["scale"]), band)))
        bands[row["row"], row["column"]] = lines, claim
    return bands


def _lead_to_results(chosen: Item, grid: str) -> str:
    """Name the command that shows the grid of a table from `results/`; empty if it has none, or `grid` is the one."""
    published = find_published(chosen.paper, chosen.number) if chosen.number is not None else None
    return f"results/ has its grid: `ablate papers {published[0]}`" if published and published[1] != grid else ""


def _missing_rows(data: pl.DataFrame) -> dict[str, str]:
    """Say why a row has no value of the grid's: by row, the reasons of its cells."""
    rows = data.group_by("row", maintain_order=True).agg(
        pl.col("mean").is_null().all().alias("missing"), pl.col("why").drop_nulls().unique(maintain_order=True)
    )
    return {row: "; ".join(why[:_MOST_OF_ROW]) for row, missing, why in rows.iter_rows() if missing and why}


def _table(
    sheet: Sheet,
    below: Mapping[tuple[str, str], Sequence[str]],
    missing: Mapping[str, str] | None = None,
    *,
    own: bool = True,
) -> Component:
    """Lay out a sheet; with `own` false without the grid's own values, of which it has none."""
    reasons = missing or {}
    titles = [*sheet.columns, *(["why nothing of yours"] if reasons else [])]
    rows = [html.Tr([html.Td(sheet.corner), *(html.Th(name, scope="col") for name in titles)])]
    for name, texts in zip(sheet.rows, sheet.entries, strict=True):
        places = zip(sheet.columns, texts, strict=True)
        cells = [
            html.Td(_entry(each, below.get((name, column), ()), own=own), title=each.hint) for column, each in places
        ]
        if reasons:
            cells.append(html.Td(reasons.get(name, ""), className="why"))
        rows.append(html.Tr([html.Th(name, scope="row"), *cells]))
    table = html.Table([html.Thead(rows[0]), html.Tbody(rows[1:])], className="published")
    label = {"aria-label": "Printed and own"}
    parts = [html.Div(table, className="scroll tall", tabIndex="0", role="region", **label)]
    if sheet.legend:
        parts.append(html.Ul([html.Li(f"{sign}: {words}") for sign, words in sheet.legend], className="marks"))
    return html.Div(parts)


def _entry(each: TableText, below: Sequence[str], *, own: bool) -> list[Component]:
    doubts = [html.Sup(f" {each.printed_marks}")] if each.printed_marks else []
    printed = [html.Span([each.printed, *doubts], className="printed")] if each.printed else []
    if not own:
        return printed
    words = [each.words, *([html.Sup(f" {each.marks}")] if each.marks else [])]
    value = html.Strong(words) if each.best else html.Span(words)
    return [*printed, value, *(html.Small(words) for words in (*below, each.note) if words)]


def _claims(view: PageView) -> SlotContent:
    chosen = chosen_item(view)
    if _tell_choice(view):
        return SlotContent(message=AS_ABOVE)
    if _has_no_values(chosen):
        return SlotContent(message="It prints no table of values, and claims nothing of an operator and a baseline.")
    if not claims(filter_published(chosen.paper, f"T{chosen.number}")):
        return SlotContent(message="This table compares no operator with a baseline.")
    compared = _compare_claims(view)
    counts = dict(compared.group_by("word").len().iter_rows())
    told = ", ".join(f"{counts[word]} {word}" for word in WORDS if counts.get(word))
    rows = compared.filter(pl.col("word") != "not comparable")
    caption = (
        f"Each claim of the table beside each pair of cells here: {told}. A word is about the sign of the two "
        "differences; none says that a result was obtained again. `ablate published --compare --all` lists the others."
    )
    shown = rows.select(_CLAIMED).with_columns(pl.col("published", "own", "low", "high").round_sig_figs(3))
    if shown.is_empty():
        why = compared["reason"].value_counts(sort=True)["reason"][0]
        return SlotContent(message=f"No claim of this table can be compared with this grid. Most often: {why}.")
    wide = {name: {"width": 320} for name in ("reason", "claim", "differs", "trust")}
    return SlotContent(caption=caption, data=shown, columns=columns(shown, wide))


_CLAIMED: Final = (
    *("word", "claim", "metric", "unit", "published", "own", "low", "high", "pairs", "label", "point", "reason"),
    *("differs", "trust"),
)


def _notes_of(chosen: Item) -> list[Note]:
    """Collect known problems of an item: of its printed values, of its table, or of itself."""
    numbers = {n for cell in _cells_of(chosen) for n in cell.notes}
    own = (chosen.paper, chosen.name)
    return [each for each in notes() if each.note in numbers or (each.paper, each.place) == own]


def _cells_of(chosen: Item) -> Sequence[PublishedCell]:
    """Describe what a paper prints for an item; for a figure, explain its marks."""
    number = chosen.printed.number if chosen.printed is not None else chosen.number
    if number is None or (chosen.kind == "figure" and chosen.printed is None):
        return ()
    return paper_tables.printed_table(chosen.paper, number)


def _doubts(view: PageView) -> SlotContent:
    if _tell_choice(view):
        return SlotContent(message=AS_ABOVE)
    chosen = chosen_item(view)
    marked = f"Its marks are of {chosen.printed.words}: " if chosen.printed is not None else ""
    captions = list(dict.fromkeys(f"{marked}{cell.caption}" for cell in _cells_of(chosen)))
    texts = [f"{papers()[chosen.paper]}, {chosen.name}: {chosen.shows}.", *captions]
    parts = [html.P(text, className="note") for text in texts]
    parts.append(html.P(f"It is drawn from: {', '.join(chosen.needs)}."))
    if chosen.spec:
        parts.append(html.P(["A spec that fills some of it: ", html.Code(f"ablate run {chosen.spec}")]))
    if problems := _notes_of(chosen):
        unusable = " (nothing is compared with these values)"
        listed = [html.Li(f"{each.place}: {each.text}{unusable if each.unusable else ''}") for each in problems]
        return SlotContent(parts=[*parts, html.Ul(listed)])
    known = "Nothing is known against the printed values. No paper says how many seeds they are of."
    return SlotContent(parts=[*parts, html.P(known if captions else "It prints no values.")])


def _controls(view: PageView) -> Sequence[Control]:
    titles = {key: f"{key} {title}" for key, title in papers().items()}
    now = chosen_item(view)
    named = {each.name: f"{each.name.capitalize()}: {each.title}" for each in ITEMS if each.paper == now.paper}
    return (
        Control("paper", "Paper", "choice", titles, usual=now.paper, resets=("item",)),
        Control("item", "Figure or table", "choice", named, usual=now.name),
    )


PUBLISHED = AppPage(
    name="published",
    title="Published",
    letter="p",
    question="What did the papers print, and what is in its place here?",
    address=PublishedAddress,
    controls=_controls,
    slots=(
        Slot("item", "Printed and own", _show_item),
        Slot("claims", "Claims", _claims, "table"),
        Slot("doubts", "What is known of it", _doubts, "words"),
    ),
)
