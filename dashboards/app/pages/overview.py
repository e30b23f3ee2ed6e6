"""Overview: how far a grid is, what it says so far, what it can say at all, what failed, and what to do next."""

from collections import Counter
from typing import Any, Final

import polars as pl

from dashboards.app.address import Address
from dashboards.app.once import once
from dashboards.app.page import Key, Page, Shown, Slot, View, grid_of, link
from dashboards.app.pages.compare import CompareAddress, judged
from dashboards.figures.failures import failures
from dashboards.figures.states import STATES, draw_shares, draw_states, fits, shares, states
from dashboards.next_steps import next_steps
from dashboards.problems import tried
from dashboards.sections.charts import named
from dashboards.sections.overview import progress_words
from dashboards.sections.verdict_table import marked, summary
from dashboards.subject import Subject
from dashboards.theme import Style, dark_partners
from dashboards.words import change, count, p_value
from store.noise import noise_floor
from store.verdicts import Measure

_MOST_LABELS: Final = 6
_RANK: Final = {"better": 0, "worse": 1, "tiny but real": 2, "undecided": 3, "equivalent": 4, "no verdict": 5}
"""Which verdicts are told first."""


def _states(view: View) -> tuple[pl.DataFrame, Counter[str]]:
    about = grid_of(view)
    cells = [cell.cell for cell in about.cells]
    found = once(view.store, ("states", about.grid), lambda: states(view.store, about.grid, cells))
    return found, Counter(found["state"].to_list())


def _judged(view: View) -> tuple[Subject, Measure, pl.DataFrame]:
    """The grid by its own measure and baseline."""
    return judged(view._replace(address=CompareAddress(grid=view.address.grid)))


def _progress(view: View) -> Shown:
    about = grid_of(view)
    found, counts = _states(view)
    stopped = counts["stopped"]
    done = {
        "planned": found.height,
        "ok": counts["ok"] + counts["unreadable"],
        "failed": counts["failed"],
        "running": counts["running"],
        "pending": counts["pending"] + stopped,
    }
    sizes = f"{count(len(about.cells), 'cell')}, {count(len(about.header['seeds']), 'seed')}."
    whole = fits(found)
    legend = [
        Key(
            Style(state.color, dark_partners([])[state.color], "solid", "square"),
            f"{state.sign} {state.word}",
            name if whole else "",
        )
        for name, state in STATES.items()
        if counts[name]
    ]
    said = f"{progress_words(done, stopped)} {sizes}"
    if counts["unreadable"]:
        said += f" {count(counts['unreadable'], 'finished trial')} without a readable result."
    data = found.select(pl.col("label").alias("cell"), "seed", "trial", "state", pl.col("why").alias("reason"))
    if whole:
        return Shown(draw_states(found, about.look), f"{said} A square per trial.", data, legend)
    grouped = shares(view.store, about.grid, found)
    by = f"by {grouped.by} and seed" if grouped.by else "by seed"
    caption = f"{said} Trials {by}: how many are in which state; colour: the share that is done."
    return Shown(draw_shares(grouped), caption, data, legend)


def _verdicts(view: View) -> Shown:
    about, measure, found = _judged(view)
    place = pl.col("verdict").replace_strict(_RANK, return_dtype=pl.Int64)
    found = found.sort(place, "p", nulls_last=True, maintain_order=True)
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
        link("variant", "compare", "cell"),
        *(_wrapped(name) if name == "reason" else {"field": name} for name in rows.columns[1:]),
    ]
    return Shown(caption=said, data=rows, columns=columns)


def _wrapped(name: str, share: int = 1) -> dict[str, Any]:
    return {"field": name, "flex": share, "minWidth": 240, "wrapText": True, "autoHeight": True}


def _noise(view: View) -> Shown:
    about = grid_of(view)
    found = noise_floor(view.store, about.grid)
    if not found.comparisons:
        return Shown(
            message="Nothing is known of the noise yet: no variant has three seeds in common with the baseline."
        )
    words = [
        (n, *(change(value, found.scale).removeprefix("+") for value in ends), n == found.planned)
        for n, *ends in found.frame.iter_rows()
    ]
    planned = next(row for row in words if row[4])
    what = "odds of " if found.scale == "logit" else ""
    said = (
        f"The {count(found.planned, 'seed')} of this grid find a true difference of {planned[1]} in {what}"
        f"{about.measure.name if about.measure else 'the measure'} in four of five repetitions "
        f"({planned[2]} to {planned[3]} by comparison); smaller ones are likely to stay undecided."
        if planned[1] != "–"
        else f"{count(found.planned, 'seed')} are too few for any verdict; a verdict needs three."
    )
    caption = (
        f"{said} Computed from the spread of {found.comparisons} of {count(found.family, 'comparison')}, for the "
        "hardest step of Holm's correction; from few seeds the spread itself is rough."
    )
    data = pl.DataFrame(
        [
            (f"{n}, planned" if own else str(n), middle, f"{low} to {high}" if middle != "–" else "–")
            for n, middle, low, high, own in words
        ],
        schema=["paired seeds", "smallest difference that is found", "over comparisons"],
        orient="row",
    )
    return Shown(caption=caption, data=data, columns=[{"field": name} for name in data.columns])


def _next(view: View) -> Shown:
    about = grid_of(view)
    _, counts = _states(view)
    found, problem = tried(lambda: _judged(view)[2])
    steps = next_steps(about, counts, found)
    why = "" if problem is None else f"What is undecided is not known: {problem}"
    if steps.is_empty():
        return Shown(
            message=why or "Nothing is left to do: every trial has ended well and every variant has a verdict."
        )
    columns = [_wrapped("what"), _wrapped("why", 2), _wrapped("how", 2)]
    return Shown(message=why, data=steps, columns=columns)


def _failures(view: View) -> Shown:
    about = grid_of(view)
    found = failures(view.store, about.grid)
    if found.is_empty():
        return Shown(message="No trial has failed.")
    more = pl.col("labels").list.len().cast(pl.Int64) - _MOST_LABELS
    rows = found.select(
        pl.col("reason").fill_null("unknown"),
        "n",
        pl.concat_str(
            pl.col("labels").list.head(_MOST_LABELS).list.join(", "),
            pl.when(more > 0).then(pl.format(" and {} more", more)).otherwise(pl.lit("")),
        ).alias("cells"),
        "message",
        "example",
    )
    total = int(found["n"].sum())
    reasons = found.with_columns(pl.col("reason").fill_null("unknown")).group_by("reason").agg(pl.col("n").sum())
    by = ", ".join(f"{reason} {n}" for reason, n in reasons.sort("n", "reason", descending=[True, False]).iter_rows())
    caption = (
        f"{count(total, 'failed trial')} of {count(found.height, 'kind')} ({by}). Averages leave failed trials out."
    )
    columns: list[dict[str, Any]] = [
        {"field": "reason", "width": 150},
        {"field": "n", "width": 80},
        _wrapped("cells"),
        _wrapped("message", 2),
        link("example", "run", "run", width=150),
    ]
    return Shown(caption=caption, data=rows, columns=columns)


def _left_out(view: View) -> Shown:
    """Files in quarantine, and what else readers of these results must know."""
    store = view.store
    shards = store.bad_shards().with_columns(what=pl.lit("results that are not served"))
    records = store.bad_records().with_columns(what=pl.lit("a record that cannot be read"))
    found = pl.concat([shards, records]).select("file", "what", "reason")
    _, counts = _states(view)
    halved = (
        f" Halving stopped {count(counts['stopped'], 'trial')} on the way: these cells have no verdict."
        if counts["stopped"]
        else ""
    )
    if found.is_empty():
        return Shown(message=f"No file is in quarantine.{halved}")
    n = found.height
    said = (
        f"{count(n, 'file')} could not be read and {'is' if n == 1 else 'are'} not served; the rest is shown.{halved}"
    )
    return Shown(message=said, data=found, columns=[_wrapped("file"), {"field": "what"}, _wrapped("reason", 2)])


OVERVIEW = Page(
    name="overview",
    title="Overview",
    letter="o",
    about="How far is it, what does it say so far, what failed, and what is next?",
    address=Address,
    controls=lambda _: (),
    slots=(
        Slot("progress", "Progress", _progress),
        Slot("verdicts", "Verdicts", _verdicts, "table"),
        Slot("next", "What to do next", _next, "table"),
        Slot("noise", "Noise floor", _noise, "table"),
        Slot("failures", "Failures", _failures, "table"),
        Slot("left-out", "Left out", _left_out, "table"),
    ),
)
