"""The report of a campaign: one HTML file that works offline, prints, and follows the system's light or dark theme."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from ablate.dashboards.data.captions import lead_by_axes, name_best, rank_axes, summarise_verdicts
from ablate.dashboards.data.formatting import count
from ablate.dashboards.data.grid_context import (
    GridContext,
    best_first,
    campaign_styles,
    grid_context,
    in_order,
    name_settings,
)
from ablate.dashboards.data.user_errors import catch_user_error, sentence
from ablate.dashboards.figures.forest import effects
from ablate.dashboards.figures.states import totals
from ablate.dashboards.html.blocks import state
from ablate.dashboards.html.document import document
from ablate.dashboards.html.markup import tag, text
from ablate.dashboards.report import parts
from ablate.dashboards.report.charts import charts
from ablate.dashboards.theme.styles import REST, Style
from ablate.store import Store
from ablate.store.analysis.headline import count_headlines
from ablate.store.analysis.judge import JudgedGrid, judge
from ablate.store.analysis.verdicts import compared_runs
from ablate.store.files.atomic import write_atomic


def write_report(root: Path, out: Path | None = None, grid: str | None = None) -> Path:
    """Write the report of the campaign `root` and return where it is.

    Args:
        root: the campaign directory.
        out: the file to write; by default report.html in the campaign.
        grid: one of its grids; by default all.

    Raises:
        NotFoundError: there is no such campaign or grid.
        StoreError: the store cannot be read as it is.
        EnvironmentProblem: the file cannot be written.
    """
    with Store.open(root, keep_answers=True) as store:
        page = report(store, root.resolve().name, [grid] if grid is not None else store.grids())
    path = out if out is not None else root / "report.html"
    write_atomic(path, page.encode())
    return path


def report(store: Store, title: str, grids: Sequence[str]) -> str:
    """The report of some grids of an open store as one HTML document. A part that cannot be computed says why.

    Raises NotFoundError for an unknown grid.
    """
    styles = campaign_styles(store)
    contexts = [grid_context(store, grid, styles) for grid in grids]
    body = _header(store, title, contexts) + parts.quarantine(store)
    for i, context in enumerate(contexts, 1):
        unseen = len(grids) == 1 and context.grid == title
        heading = tag("h2", text(context.grid), class_="unseen" if unseen else None)
        inner, problem = catch_user_error(lambda context=context, i=i: _section(context, styles, f"grid-{i}"))  # type: ignore[misc]
        body += tag("section", heading + (state(str(problem)) if inner is None else inner), id=f"grid-{i}")
    appendix = tag("h2", "Appendix") + parts.reading() + parts.environment(store)
    body += tag("section", appendix, id="appendix", class_="appendix")
    return document(f"{title} · ablate", body, [REST, *styles.values()])


def _header(store: Store, title: str, contexts: Sequence[GridContext]) -> str:
    written = datetime.now(UTC).strftime("%-d %B %Y, %H:%M UTC")
    top = tag("p", "Ablation report", class_="kicker") + tag("h1", text(title))
    top += tag("p", text(f"{count(len(contexts), 'grid')} · written {written}"), class_="meta")
    top += tag("p", "Which variants differ from their baseline, by how much, how sure is it, what else explains it?")
    top += "".join(state(sentence(warning)) for warning in store.warnings())
    if not contexts:
        top += tag("div", tag("p", "This campaign has no grid yet; <code>ablate run</code> makes one."), class_="state")
    if len(contexts) > 1:
        links = [(context.grid, f"#grid-{i}") for i, context in enumerate(contexts, 1)] + [("Appendix", "#appendix")]
        items = "".join(tag("li", tag("a", text(name), href=target)) for name, target in links)
        top += tag("nav", tag("ul", items), aria_label="Grids")
    return tag("header", top, class_="page")


def _section(context: GridContext, styles: Mapping[str, Style], key: str) -> str:
    progress = in_order(context.store.progress(context.grid), [cell.cell for cell in context.cells])
    judged, problem = _read_verdicts(context, progress)
    unjudged = _explain_no_verdicts(context, progress) if problem is None else f"Nothing is compared. {problem}"
    inner, settings = "", context
    if judged is not None and context.measure is not None:
        settings = name_settings(context, compared_runs(context.store, context.grid, context.measure))
    if judged is not None:
        first, rest = _lead(settings, judged)
        inner = tag("p", text(first), class_="lead") + tag("p", text(rest))
    inner += (state(unjudged) if unjudged else "") + parts.overview(context, progress)
    if judged is not None and context.measure is not None:
        inner += parts.verdict_table(settings, context.measure, judged)
        inner += parts.controls(settings, context.measure, judged) + parts.two_parts(settings, context.measure)
    usable = context if problem is None else context._replace(measure=None)
    done = totals(progress)
    inner += charts(usable, styles, key, is_finished=done["done"] == done["planned"])
    return inner + parts.show_failures(usable, key) + parts.definition(context)


def _lead(context: GridContext, judged: JudgedGrid) -> tuple[str, str]:
    """Say the best claim with its doubt, or the axes that matter where these are more certain; then the rest."""
    rows, measure, headlines = judged.rows, context.measure, count_headlines(judged.rows)
    rest = f"{summarise_verdicts(rows, str(context.baseline_name))}{headlines and f' {sentence(headlines)}'}"
    if measure is None:
        return rest, ""
    best = name_best(context, measure, rows, str(context.baseline_label), judged.checks)
    if sum(len(axis["labels"]) > 1 for axis in context.header["axes"]) < 2:
        return best, rest
    levels, _ = catch_user_error(lambda: effects(context.store, context.grid, measure))
    if not levels or levels.effects.filter(order=1)["factor"].n_unique() < 2:
        return best, rest
    axes, doubts = rank_axes(levels.effects, measure)
    if lead_by_axes(levels.effects, rows):
        return axes, f"{doubts} {best} {rest}".strip()
    return best, f"{rest} {axes} {doubts}".strip()


def _read_verdicts(context: GridContext, progress: pl.DataFrame) -> tuple[JudgedGrid | None, str | None]:
    """Return the verdicts of a grid, or None and the problem with them; None twice if there is nothing to compare."""
    if context.measure is None or context.baseline is None or not totals(progress)["done"]:
        return None, None
    judged, problem = catch_user_error(lambda: judge(context.store, context.grid))
    if judged is None or judged.rows.is_empty():
        return None, problem
    return judged._replace(rows=best_first(judged.rows, context.measure)), None


def _explain_no_verdicts(context: GridContext, progress: pl.DataFrame) -> str:
    """Say why there are no verdicts; empty if there are."""
    if context.problem is not None:
        return f"Nothing is compared. {context.problem}"
    if context.measure is None:
        return "This grid names no measure, so nothing is compared; its runs are shown."
    if context.baseline is None:
        return "This grid names no baseline, so its cells are shown and not compared."
    if not totals(progress)["done"]:
        return "No trial has finished well yet. Verdicts appear with the first results."
    if len(context.cells) == 1:
        return "This grid has one cell, so there is nothing to compare."
    return ""
