"""The progress of a grid in a sentence and a bar, and its failures."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl

from dashboards.data.captions import name_cells, progress_words
from dashboards.data.formatting import BETWEEN, count
from dashboards.data.grid_context import GridContext
from dashboards.figures.forest import draw_rates, rates
from dashboards.figures.states import STATUSES, WORDS, draw_progress, states, totals
from dashboards.html.blocks import FigureBlock, color_legend, draw_all
from dashboards.html.markup import details, tag, text


def overview(about: GridContext, progress: pl.DataFrame) -> str:
    """The sentence, the bar, and what the grid is."""
    done = totals(progress)
    shares = "".join(
        f'<span class="{state}" style="width:{100 * done[state] / max(done["planned"], 1):.3f}%"></span>'
        for state in STATUSES
        if done[state]
    )
    pruned = sum(rule["count"] for rule in about.header.get("rules") or [])
    more = _without_number(about) + (f" Rules left out {count(pruned, 'combination')}." if pruned else "")
    more += f" All are {about.common}." if about.common else ""
    more += f" Names end with {BETWEEN.join(about.parts)}." if about.parts else ""
    labels = [cell.label for cell in about.cells if cell.cell == about.baseline]
    more += f" The baseline is {labels[0]}." if labels and about.baseline_name != labels[0] else ""
    lost = max(0, about.header["trials"] - done["planned"])  # their lines of the plan cannot be read
    done = {**done, "planned": done["planned"] + lost, "pending": done["pending"] + lost}
    sizes = f"{count(len(about.cells), 'cell')}, {count(len(about.header['seeds']), 'seed')}"
    sentence = f"{progress_words(done)} {sizes}.{more}"
    return tag("div", shares, class_="bar", aria_hidden="true") + tag("p", text(sentence), class_="meta")


def _without_number(about: GridContext) -> str:
    """A sentence about trials that are done, and count as failed all the same."""
    found = states(about.store, about.grid, [cell.cell for cell in about.cells], about.measure)
    lost = found.filter(pl.col("state") == "not finite").height
    if not lost or about.measure is None:
        return ""
    return f" Of those done {lost:,} ended with {about.measure.name} that is no finite number: counted as failed."


def progress_picture(about: GridContext, progress: pl.DataFrame, key: str) -> FigureBlock | None:
    """Bars by cell, unless everything is done and there is nothing to see."""
    done = totals(progress)
    if done["ok"] == done["planned"]:
        return None
    legend = color_legend({state: WORDS[state] for state in STATUSES if done[state]})
    figure = draw_progress(progress, about.look)
    caption = "Trials of each variant by state, when this report was written."
    return FigureBlock(f"{key}-progress", "Progress", caption, [(None, figure)], progress.drop("cell"), legend)


_WORDS: Final = {"diverged": "diverged", "out_of_memory": "ran out of memory", "killed": "killed", "error": "error"}
_MOST_LABELS: Final = 6


def show_failures(about: GridContext, key: str) -> str:
    """The section, or nothing where nothing failed."""
    found = about.store.failures(about.grid)
    if found.is_empty():
        return ""
    total = int(found["n"].sum())
    words = f"{count(total, 'failed trial')} of {count(found.height, 'kind')}. Averages leave failed trials out."
    heading = tag("h3", "Failures") + tag("p", text(words), class_="caption")
    kinds = "".join(_kind(row, about) for row in found.iter_rows(named=True))
    return tag("div", heading + kinds, class_="block failures") + draw_all("Failure rates", _rates(about, key))


def _kind(row: Mapping[str, Any], about: GridContext) -> str:
    reason = _WORDS.get(row["reason"], str(row["reason"] or "unknown"))
    labels = [about.look.names[cell.cell] for cell in about.cells if cell.label in row["labels"]]
    more = f" and {len(labels) - _MOST_LABELS} more" if len(labels) > _MOST_LABELS else ""
    where = ", ".join(labels[:_MOST_LABELS]) + more
    first = tag("p", tag("strong", text(f"{count(row['n'], 'trial')}: {reason}")) + text(f" · {where}"))
    message = tag("p", text(row["message"]), class_="note") if row["message"] else ""
    trace = details("Traceback", tag("pre", text(row["traceback"]))) if row["traceback"] else ""
    example = tag("p", text(f"Example: trial {row['example']}"), class_="note")
    return tag("div", first + message + example + trace, class_="state alarm")


def _rates(about: GridContext, key: str) -> Iterator[FigureBlock]:
    if about.measure is None or about.baseline is None:
        return
    found = rates(about.store, about.grid, [cell.cell for cell in about.cells])
    if found.filter(pl.col("failed") > 0).is_empty():
        return
    caption = "Share of the ended trials of each variant that failed. Bar: 95 % Wilson interval."
    figure = draw_rates(found, about.look)
    yield FigureBlock(f"{key}-rates", "Failure rates", caption, [(None, figure)], name_cells(found, about))
