"""The report of a campaign: one HTML file that works offline, prints, and follows the system's light or dark theme."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from dashboards.blocks import picture
from dashboards.figures.progress import progress, totals
from dashboards.html import tag, text
from dashboards.page import document
from dashboards.sections.appendix import definition, environment, quarantine, reading
from dashboards.sections.charts import pictures
from dashboards.sections.failed import failed
from dashboards.sections.overview import overview, progress_picture
from dashboards.sections.verdict_table import summary, verdict_table
from dashboards.subject import Subject, in_order, subject
from dashboards.theme import REST, Style, operator_styles
from dashboards.words import count
from store import Store
from store.files import write_atomic
from store.verdicts import verdicts


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
    with Store.open(root) as store:
        page = report(store, root.resolve().name, [grid] if grid is not None else store.grids())
    path = out if out is not None else root / "report.html"
    write_atomic(path, page.encode())
    return path


def report(store: Store, title: str, grids: Sequence[str]) -> str:
    """The report of some grids of an open store as one HTML document. Raises NotFoundError for an unknown grid."""
    operators = campaign_styles(store)
    subjects = [subject(store, grid, operators) for grid in grids]
    styles = [REST, *operators.values(), *(style for about in subjects for style in about.look.styles.values())]
    body = _header(store, title, subjects) + quarantine(store)
    body += "".join(
        _section(about, f"grid-{i}", alone=len(grids) == 1 and about.grid == title)
        for i, about in enumerate(subjects, 1)
    )
    body += tag("section", tag("h2", "Appendix") + reading() + environment(store), id="appendix", class_="appendix")
    return document(f"{title} · ablate", body, styles)


def campaign_styles(store: Store) -> dict[str, Style]:
    """The style of every operator of the campaign, the same for every report of it, whichever grids that shows."""
    operators = store.sql("SELECT DISTINCT operator FROM grid_trial ORDER BY operator")["operator"].to_list()
    return operator_styles(operators)


def _header(store: Store, title: str, subjects: Sequence[Subject]) -> str:
    written = datetime.now(UTC).strftime("%-d %B %Y, %H:%M UTC")
    names = [count(len(subjects), "grid"), f"written {written}"]
    top = (
        tag("p", "Ablation report", class_="kicker")
        + tag("h1", text(title))
        + tag("p", text(" · ".join(names)), class_="meta")
    )
    if store.stale is not None:
        top += tag("div", tag("p", text(f"The newest results may be missing: {store.stale}.")), class_="state")
    if not subjects:
        top += tag("div", tag("p", "This campaign has no grid yet; <code>ablate run</code> makes one."), class_="state")
    if len(subjects) > 1:
        links = "".join(tag("li", tag("a", text(about.grid), href=f"#grid-{i}")) for i, about in enumerate(subjects, 1))
        links += tag("li", '<a href="#appendix">Appendix</a>')
        top += tag("nav", tag("ul", links), aria_label="Grids")
    return tag("header", top, class_="page")


def _section(about: Subject, key: str, *, alone: bool) -> str:
    cells = [cell.cell for cell in about.cells]
    found = in_order(progress(about.store, about.grid), cells)
    judged = _judged(about, found)
    lead = "" if judged is None else tag("p", text(summary(judged, str(about.baseline_name))), class_="lead")
    inner = (
        tag("h2", text(about.grid), class_="unseen" if alone else None)
        + lead
        + _unjudged(about, found)
        + overview(about, found)
    )
    moving = progress_picture(about, found, key)
    inner += "" if moving is None else picture(moving)
    if judged is not None and about.measure is not None:
        inner += verdict_table(about, about.measure, judged)
    inner += "".join(picture(shown) for shown in pictures(about, judged, key))
    inner += failed(about, key) + definition(about)
    return tag("section", inner, id=key)


def _judged(about: Subject, found: pl.DataFrame) -> pl.DataFrame | None:
    """The verdicts of a grid that has something to judge."""
    if about.measure is None or about.baseline is None or not totals(found)["ok"]:
        return None
    judged = in_order(verdicts(about.store, about.grid), [cell.cell for cell in about.cells])
    return None if judged.is_empty() else judged


def _unjudged(about: Subject, found: pl.DataFrame) -> str:
    """Why there are no verdicts, in a sentence; nothing where there are."""
    if about.measure is None:
        words = "This grid names no measure, so nothing is judged; its runs are shown."
    elif about.baseline is None:
        words = "This grid names no baseline, so its cells are shown and not compared."
    elif not totals(found)["ok"]:
        words = "No trial has finished well yet. Verdicts appear with the first results."
    elif len(about.cells) == 1:
        words = "This grid has one cell, so there is nothing to compare."
    else:
        return ""
    return tag("div", tag("p", text(words)), class_="state")
