"""Overview: how far a grid is, what it says so far, and what failed."""

import polars as pl

from dashboards.app.address import Address
from dashboards.app.page import Key, Page, Shown, Slot, View, grid_of
from dashboards.app.pages.compare import CompareAddress, judged
from dashboards.figures.failures import failures
from dashboards.figures.progress import STATES, WORDS, draw_progress, progress, totals
from dashboards.sections.charts import named
from dashboards.sections.overview import progress_words, stopped_by_halving
from dashboards.sections.verdict_table import marked, summary
from dashboards.subject import in_order
from dashboards.theme import STATUS, Style
from dashboards.words import change, count, p_value

_MOST_LABELS = 6


def _progress(view: View) -> Shown:
    about = grid_of(view)
    found = in_order(progress(view.store, about.grid), [cell.cell for cell in about.cells])
    done = totals(found)
    legend = [
        Key(Style(STATUS[state], STATUS[state], "solid", "square"), WORDS[state], "") for state in STATES if done[state]
    ]
    stopped = stopped_by_halving(view.store, about.grid)
    sizes = f"{count(len(about.cells), 'cell')}, {count(len(about.header['seeds']), 'seed')}"
    caption = f"{progress_words(done, stopped)} {sizes}. Bars: trials by state."
    return Shown(draw_progress(found, about.look), caption, found.drop("cell"), legend)


def _verdicts(view: View) -> Shown:
    given = view._replace(address=CompareAddress(grid=view.address.grid))
    about, measure, found = judged(given)
    rows = named(found, about).select(
        "variant",
        pl.col("verdict").map_elements(marked, return_dtype=pl.String),
        pl.struct("difference")
        .map_elements(lambda row: change(row["difference"], measure.scale), return_dtype=pl.String)
        .alias("difference"),
        pl.col("p_holm").map_elements(p_value, return_dtype=pl.String, skip_nulls=False).alias("p (Holm)"),
        "pairs",
        "reason",
    )
    said = f"{summary(found, str(about.baseline_name))} {measure.name}, {measure.better} is better."
    columns = [
        {"field": name, **({"flex": 1, "wrapText": True, "autoHeight": True} if name == "reason" else {})}
        for name in rows.columns
    ]
    return Shown(caption=said, data=rows, columns=columns)


def _failures(view: View) -> Shown:
    about = grid_of(view)
    found = failures(view.store, about.grid)
    if found.is_empty():
        return Shown(message="No trial has failed.")
    rows = found.select(
        "n", "reason", pl.col("labels").list.head(_MOST_LABELS).list.join(", ").alias("cells"), "message", "example"
    )
    total = int(found["n"].sum())
    caption = f"{count(total, 'failed trial')} of {count(found.height, 'kind')}. Averages leave failed trials out."
    return Shown(caption=caption, data=rows, columns=[{"field": name} for name in rows.columns])


OVERVIEW = Page(
    name="overview",
    title="Overview",
    letter="o",
    about="How far is it, what does it say so far, and what failed?",
    address=Address,
    controls=lambda _: (),
    slots=(
        Slot("progress", "Progress", _progress),
        Slot("verdicts", "Verdicts", _verdicts, "table"),
        Slot("failures", "Failures", _failures, "table"),
    ),
)
