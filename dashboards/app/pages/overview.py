"""Overview: how far a grid is, what it says so far, what it can say at all, what failed, and what to do next."""

from collections import Counter
from typing import Any, Final

import polars as pl

from dashboards.app.address import Address
from dashboards.app.page import AppPage, Key, PageView, Slot, SlotContent, grid_of, link, memoise
from dashboards.app.pages.compare import CompareAddress, judge_view
from dashboards.data.captions import (
    describe_measure,
    mark_verdict,
    name_cells,
    pairs_words,
    progress_words,
    summarise_verdicts,
)
from dashboards.data.formatting import change, count, in_odds, p_value
from dashboards.data.grid_context import GridContext
from dashboards.data.next_steps import next_steps
from dashboards.data.seed_averages import rope_words
from dashboards.data.user_errors import catch_user_error
from dashboards.figures.states import STATES, draw_shares, draw_states, fits_rows, shares, states
from dashboards.theme.styles import Style, dark_partners
from store.analysis.noise_floor import noise_floor
from store.analysis.verdicts import GridMeasure

_MOST_LABELS: Final = 6
_RANK: Final = {"better": 0, "worse": 1, "tiny but real": 2, "undecided": 3, "equivalent": 4, "no verdict": 5}
"""Which verdicts are told first."""


def _states(view: PageView) -> tuple[pl.DataFrame, Counter[str]]:
    about = grid_of(view)
    cells = [cell.cell for cell in about.cells]
    found = memoise(view.store, ("states", about.grid), lambda: states(view.store, about.grid, cells, about.measure))
    return found, Counter(found["state"].to_list())


def _judge_view(view: PageView) -> tuple[GridContext, GridMeasure, pl.DataFrame]:
    return judge_view(view._replace(address=CompareAddress(grid=view.address.grid)))


def _progress(view: PageView) -> SlotContent:
    about = grid_of(view)
    found, counts = _states(view)
    lost = max(0, about.header["trials"] - found.height)  # their lines of the plan cannot be read
    done = {
        "planned": found.height + lost,
        "ok": counts["ok"] + counts["unreadable"],
        "failed": counts["failed"] + counts["not finite"],
        "running": counts["running"],
        "pending": counts["pending"] + lost,
    }
    sizes = f"{count(len(about.cells), 'cell')}, {count(len(about.header['seeds']), 'seed')}."
    single = fits_rows(found)
    legend = [
        Key(
            Style(state.color, dark_partners([])[state.color], "solid", "square"),
            f"{state.sign} {state.word}",
            name if single else "",
        )
        for name, state in STATES.items()
        if counts[name]
    ]
    said = f"{progress_words(done)} {sizes}"
    if counts["not finite"] and about.measure is not None:
        ended = count(counts["not finite"], "trial")
        said += f" Counted as failed: {ended} that ended with {about.measure.name} that is no finite number."
    if counts["unreadable"]:
        said += f" {count(counts['unreadable'], 'finished trial')} without a readable result."
    data = found.select(pl.col("label").alias("cell"), "seed", "trial", "state", pl.col("why").alias("reason"))
    if single:
        return SlotContent(draw_states(found, about.look), f"{said} A square per trial.", data, legend)
    grouped = shares(view.store, about.grid, found)
    by = f"by {grouped.by} and seed" if grouped.by else "by seed"
    caption = f"{said} Trials {by}: how many are in which state; colour: the share that is done."
    return SlotContent(draw_shares(grouped), caption, data, legend)


def _verdicts(view: PageView) -> SlotContent:
    about, measure, found = _judge_view(view)
    place = pl.col("verdict").replace_strict(_RANK, return_dtype=pl.Int64)
    found = found.sort(place, "p", nulls_last=True, maintain_order=True)
    rows = name_cells(found, about).select(
        "variant",
        pl.col("verdict").map_elements(mark_verdict, return_dtype=pl.String),
        pl.struct("difference")
        .map_elements(lambda row: change(row["difference"], measure.scale), return_dtype=pl.String)
        .alias(f"difference{in_odds(measure.scale)}"),
        pl.col("p_holm").map_elements(p_value, return_dtype=pl.String, skip_nulls=False).alias("p (Holm)"),
        pl.struct("method", "pairs", "planned", "runs", "baseline_runs")
        .map_elements(pairs_words, return_dtype=pl.String)
        .alias("pairs"),
        "reason",
    )
    said = f"{summarise_verdicts(found, str(about.baseline_name))} Judged by {describe_measure(measure, about.unit)}."
    columns = [
        link("variant", "compare", "cell"),
        *(_wrap_column(name) if name == "reason" else {"field": name} for name in rows.columns[1:]),
    ]
    return SlotContent(caption=said, data=rows, columns=columns)


def _wrap_column(name: str, share: int = 1) -> dict[str, Any]:
    return {"field": name, "flex": share, "minWidth": 240, "wrapText": True, "autoHeight": True}


def _noise(view: PageView) -> SlotContent:
    about = grid_of(view)
    found = noise_floor(view.store, about.grid)
    if not found.comparisons:
        whys = [f"{why} ({count(n, 'variant')})" for why, n in found.unknown.items()]
        why = "; ".join(whys) or "there is no variant beside the baseline"
        return SlotContent(message=f"Nothing is known of the noise yet: {why}.")
    words = [
        (n, *(change(value, found.scale).removeprefix("+") for value in ends), n == found.planned)
        for n, *ends in found.frame.iter_rows()
    ]
    planned = next(row for row in words if row[4])
    said = (
        f"The {count(found.planned, 'seed')} of this grid find a true difference of {planned[1]} in {_noisy(about)} in "
        f"four of five repetitions{_between(*planned[2:4])}. Smaller ones are found less often: "
        f"what is not found stays undecided{_or_equal(about)}."
        if planned[1] != "–"
        else f"With {count(found.planned, 'seed')} no verdict can be had; it needs three."
    )
    caption = (
        f"{said} Computed from the spread of {found.comparisons} of {count(found.family, 'comparison')}, for the "
        "hardest step of Holm's correction; from few seeds the spread itself is rough."
    )
    data = pl.DataFrame(
        [
            (f"{n}, planned" if own else str(n), middle, f"{low} to {high}" if low != high else middle)
            for n, middle, low, high, own in words
        ],
        schema=["paired seeds", "smallest difference that is found", "over comparisons"],
        orient="row",
    )
    return SlotContent(caption=caption, data=data, columns=[{"field": name} for name in data.columns])


def _between(low: str, high: str) -> str:
    """The range over comparisons, where there are several."""
    return f" ({low} to {high} by comparison)" if low != high else ""


def _noisy(about: GridContext) -> str:
    """Name the unit of differences."""
    if about.measure is None:
        return "the measure"
    return f"{'odds of ' if about.measure.scale == 'logit' else ''}{about.measure.name}"


def _or_equal(about: GridContext) -> str:
    """Say which verdicts a small difference may get."""
    if about.measure is None or not about.measure.rope:
        return ""
    rope = rope_words(about.measure.rope, about.measure.scale, about.unit)
    return f", unless the seeds show that it lies within the {rope} that count as equal"


def _next(view: PageView) -> SlotContent:
    about = grid_of(view)
    trials, counts = _states(view)
    found, problem = catch_user_error(lambda: _judge_view(view)[2])
    outstanding = trials.filter(pl.col("state").is_in(["running", "pending"]))
    steps = next_steps(about, counts, found, set(outstanding["cell"]))
    why = "" if problem is None else f"What is undecided is not known: {problem}"
    if steps.is_empty():
        return SlotContent(
            message=why or "Nothing is left to do: every trial has ended well and every variant has a verdict."
        )
    columns = [_wrap_column("what"), _wrap_column("why", 2), _wrap_column("how", 2)]
    return SlotContent(caption="What stands in the way of verdicts first.", message=why, data=steps, columns=columns)


def _failures(view: PageView) -> SlotContent:
    about = grid_of(view)
    found = pl.concat([view.store.failures(about.grid), _not_finite(view)], how="diagonal")
    if found.is_empty():
        return SlotContent(message="No trial has failed.")
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
        _wrap_column("cells"),
        _wrap_column("message", 2),
        link("example", "run", "run", width=150),
    ]
    return SlotContent(caption=caption, data=rows, columns=columns)


def _not_finite(view: PageView) -> pl.DataFrame:
    """Trials that ended, with what is no number, as a kind of failure: reason, n, example, labels, message."""
    found, _ = _states(view)
    lost = found.filter(pl.col("state") == "not finite")
    kinds = lost.group_by(pl.col("why").alias("message"), maintain_order=True).agg(
        pl.lit("no finite value").alias("reason"),
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("trial").first().alias("example"),
        pl.col("label").unique(maintain_order=True).alias("labels"),
    )
    return kinds.with_columns(pl.format("it ended, and measured {}", "message").alias("message"))


def _left_out(view: PageView) -> SlotContent:
    """Files in quarantine, and what else readers of these results must know."""
    store = view.store
    shards = store.bad_shards().with_columns(what=pl.lit("results that are not served"))
    records = store.bad_records().with_columns(what=pl.lit("a record that cannot be read"))
    found = pl.concat([shards, records]).select("file", "what", "reason")
    lost = [each for each in store.warnings() if not each.startswith(("the shard ", "the record "))]
    if found.is_empty():
        return SlotContent(message=" ".join(f"{each[0].upper()}{each[1:]}." for each in lost) or "Nothing is left out.")
    n = found.height
    said = f"{count(n, 'file')} could not be read and {'is' if n == 1 else 'are'} not served; the rest is shown. "
    said += " ".join(f"{each[0].upper()}{each[1:]}." for each in lost)
    return SlotContent(
        message=said, data=found, columns=[_wrap_column("file"), {"field": "what"}, _wrap_column("reason", 2)]
    )


OVERVIEW = AppPage(
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
