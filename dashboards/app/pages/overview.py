"""Overview: how far a grid is, what it says so far, what it can say at all, what failed, and what to do next."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import polars as pl

from dashboards.app.address import Address
from dashboards.app.page import WIDE, WRAP, AppPage, Key, PageView, Slot, SlotContent, columns, grid_of, link, memoise
from dashboards.app.pages.compare import CompareAddress, differences_of, judge_view, list_verdicts
from dashboards.app.pages.factors import FactorsAddress, level_effects
from dashboards.data.captions import CLAIMS, count_words, name_best, progress_words, rank_axes
from dashboards.data.formatting import change, count
from dashboards.data.grid_context import GridContext
from dashboards.data.seed_averages import rope_words
from dashboards.data.user_errors import catch_user_error, sentence
from dashboards.figures.states import STATES, draw_shares, draw_states, fits_rows, shares, states
from dashboards.theme.styles import shared_style
from store.analysis.noise_floor import noise_floor
from store.statistics.arms import more_seeds_help
from store.statistics.verdict import UNAFFORDABLE, seeds_outlook

_MOST_LABELS: Final = 6


@memoise
def _states(view: PageView) -> tuple[pl.DataFrame, Counter[str]]:
    about = grid_of(view)
    found = states(view.store, about.grid, [cell.cell for cell in about.cells], about.measure)
    return found, Counter(found["state"].to_list())


def _as_compare(view: PageView) -> PageView:
    """The page Compare of the same grid."""
    return view._replace(address=CompareAddress(grid=view.address.grid))


def _lead(view: PageView) -> SlotContent:
    """Show which variant differs, by how much, and if it is real; with the axes of a grid that has several."""
    about = grid_of(view)
    result, problem = catch_user_error(lambda: judge_view(_as_compare(view)))
    if result is None:
        return SlotContent(above=_progress_words(view), message=problem or "")
    _, measure, found = result
    best = name_best(about, measure, found, str(about.baseline_name))
    axes = ""
    levels, _ = catch_user_error(lambda: level_effects(view._replace(address=FactorsAddress(grid=view.address.grid))))
    if levels is not None and levels.effects["factor"].n_unique() > 1:
        axes = rank_axes(levels.effects, measure)
    decided = found["verdict"].is_in([*CLAIMS]).any() or " against " not in axes
    answer = f"{best}\n{axes}" if decided else f"{axes}\n{best}"  # an axis may be decided where no variant is
    return differences_of(_as_compare(view))._replace(
        answer=answer.strip(), above=f"{_progress_words(view)} {count_words(found)}."
    )


def _progress_words(view: PageView) -> str:
    about, (found, counts) = grid_of(view), _states(view)
    lost = max(0, about.header["trials"] - found.height)  # their lines of the plan cannot be read
    done = {
        "planned": found.height + lost,
        "ok": counts["ok"] + counts["unreadable"],
        "failed": counts["failed"] + counts["not finite"],
        "running": counts["running"],
        "pending": counts["pending"] + lost,
    }
    return f"{progress_words(done)} {count(len(about.cells), 'cell')}, {count(len(about.header['seeds']), 'seed')}."


def _progress(view: PageView) -> SlotContent:
    about, (found, counts) = grid_of(view), _states(view)
    single = fits_rows(found)
    legend = []
    for name, state in STATES.items():
        if counts[name]:
            style = shared_style(state.color, marker="square")
            legend.append(Key(style, f"{state.sign} {state.word}", name if single else ""))
    said = _progress_words(view)
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


def _noise(view: PageView) -> SlotContent:
    about = grid_of(view)
    found = noise_floor(view.store, about.grid)
    if not found.comparisons:
        why = "; ".join(f"{why} ({count(n, 'variant')})" for why, n in found.unknown.items())
        return SlotContent(
            message=f"Nothing is known of the noise yet: {why or 'there is no variant beside the baseline'}."
        )
    rows = []
    said = equal = ""
    measure, seeds = about.measure, count(found.planned, "seed")
    if measure is not None and measure.rope:
        rope = rope_words(measure.rope, measure.scale, about.unit)
        equal = f", unless the seeds show that it lies within the {rope} that count as equal"
    for n, *ends in found.frame.iter_rows():
        middle, low, high = (change(value, found.scale).removeprefix("+") for value in ends)
        between = f"{low} to {high}" if low != high else ""
        rows.append((f"{n}, planned" if n == found.planned else str(n), middle, between or middle))
        if n == found.planned and middle == "–":
            said = f"With {seeds} no verdict can be had; it needs three."
        elif n == found.planned:
            name = "the measure" if measure is None else f"{'odds of ' * (found.scale == 'logit')}{measure.name}"
            said = (
                f"The {seeds} of this grid find a true difference of {middle} in {name} in four of five repetitions"
                f"{between and f' ({between} by comparison)'}. Smaller ones are found less often: what is not found "
                f"stays undecided{equal}."
            )
    caption = (
        f"{said} Computed from the spread of {found.comparisons} of {count(found.family, 'comparison')}, for the "
        "hardest step of Holm's correction; from few seeds the spread itself is rough."
    )
    names = ["paired seeds", "smallest difference that is found", "over comparisons"]
    data = pl.DataFrame(rows, schema=names, orient="row")
    return SlotContent(caption=caption, data=data, columns=columns(data))


def _next(view: PageView) -> SlotContent:
    trials, counts = _states(view)
    found, problem = catch_user_error(lambda: judge_view(_as_compare(view))[2])
    outstanding = trials.filter(pl.col("state").is_in(["running", "pending"]))
    steps = next_steps(grid_of(view), counts, found, set(outstanding["cell"]))
    why = "" if problem is None else f"What is undecided is not known: {problem}"
    if steps.is_empty():
        nothing = "Nothing is left to do: every trial has ended well and every variant has a verdict."
        return SlotContent(message=why or nothing)
    caption = "What stands in the way of verdicts first."
    own = {"what": WRAP, "why": WIDE, "how": WIDE}
    return SlotContent(caption=caption, message=why, data=steps, columns=columns(steps, own))


def _failures(view: PageView) -> SlotContent:
    store, (trials, _) = view.store, _states(view)
    lost = trials.filter(pl.col("state") == "not finite")
    not_finite = lost.group_by(pl.col("why").alias("message"), maintain_order=True).agg(
        pl.lit("no finite value").alias("reason"),
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("trial").first().alias("example"),
        pl.col("label").unique(maintain_order=True).alias("labels"),
    )
    not_finite = not_finite.with_columns(pl.format("it ended, and measured {}", "message").alias("message"))
    found = pl.concat([store.failures(grid_of(view).grid), not_finite], how="diagonal")
    if found.is_empty():
        return SlotContent(message="No trial has failed.")
    found = found.with_columns(pl.col("reason").fill_null("unknown"))
    more = pl.col("labels").list.len().cast(pl.Int64) - _MOST_LABELS
    few = pl.col("labels").list.head(_MOST_LABELS).list.join(", ")
    named = pl.concat_str(few, pl.when(more > 0).then(pl.format(" and {} more", more)).otherwise(pl.lit("")))
    rows = found.select("reason", "n", named.alias("cells"), "message", "example")
    reasons = found.group_by("reason").agg(pl.col("n").sum()).sort("n", "reason", descending=[True, False])
    by = ", ".join(f"{reason} {n}" for reason, n in reasons.iter_rows())
    total = count(int(found["n"].sum()), "failed trial")
    caption = f"{total} of {count(found.height, 'kind')} ({by}). Averages leave failed trials out."
    own = {"reason": {"width": 150}, "n": {"width": 80}, "cells": WRAP, "message": WIDE}
    return SlotContent(
        caption=caption, data=rows, columns=columns(rows, {**own, "example": link("run", "run", width=150)})
    )


def _left_out(view: PageView) -> SlotContent:
    """List files in quarantine, and other warnings about these results."""
    store = view.store
    shards = store.bad_shards().with_columns(what=pl.lit("results that are not served"))
    records = store.bad_records().with_columns(what=pl.lit("a record that cannot be read"))
    found = pl.concat([shards, records]).select("file", "what", "reason")
    lost = [each for each in store.warnings() if not each.startswith(("the shard ", "the record "))]
    more = " ".join(map(sentence, lost))
    if found.is_empty():
        return SlotContent(message=more or "Nothing is left out.")
    n = found.height
    said = f"{count(n, 'file')} could not be read and {'is' if n == 1 else 'are'} not served; the rest is shown. {more}"
    return SlotContent(message=said, data=found, columns=columns(found, {"file": WRAP, "reason": WIDE}))


OVERVIEW = AppPage(
    name="overview",
    title="Overview",
    letter="o",
    about="Which component makes a difference, how much, and is it real?",
    address=Address,
    controls=lambda _: (),
    slots=(
        Slot("differences", "Differences from the baseline", _lead, sets="compare:cell"),
        Slot("verdicts", "Verdicts", lambda view: list_verdicts(_as_compare(view)), "table"),
        Slot("next", "What to do next", _next, "table"),
        Slot("progress", "Trials", _progress),
        Slot("noise", "Noise floor", _noise, "table"),
        Slot("failures", "Failures", _failures, "table"),
        Slot("left-out", "Left out", _left_out, "table"),
    ),
)


MOST_UNDECIDED: Final = 8
MOST_REASONS: Final = 4
_MORE_SEEDS: Final = "more seeds=... in the spec, for all cells, then ablate run SPEC"
SCHEMA: Final = {"what": pl.String, "why": pl.String, "how": pl.String}


Step = tuple[str, str, str]  # one thing to do, why, and how: a command, or what to change in the spec


def next_steps(
    about: GridContext, states: Mapping[str, int], verdicts: pl.DataFrame | None, unfinished: Collection[str] = ()
) -> pl.DataFrame:
    """List the next steps with reason and command; steps that block verdicts come first.

    `states` counts trials by state. `verdicts` is None if the grid cannot be judged. Verdicts of `unfinished` cells are
    not final.
    """
    steps = [*_retry_steps(about), *_outstanding(states)]
    if verdicts is not None:
        waits = pl.lit(value=True) if about.baseline in unfinished else pl.col("cell").is_in(list(unfinished))
        if n := verdicts.filter(waits, pl.col("verdict").is_in(["undecided", "no verdict"])).height:
            why = "undecided or without a verdict so far, with trials of theirs or of the baseline outstanding"
            steps.append((f"wait for {count(n, 'verdict')}", why, ""))
        settled = verdicts.filter(~waits)
        reasons = Counter(settled.filter(pl.col("verdict") == "no verdict")["reason"].to_list())
        for reason, n in reasons.most_common(MOST_REASONS):
            how = _MORE_SEEDS if more_seeds_help(reason) else ""
            steps.append((f"see to {count(n, 'variant')} without a verdict", reason, how))
        steps += _seed_steps(about, settled)
    return pl.DataFrame(steps, schema=SCHEMA, orient="row")


def _retry_steps(about: GridContext) -> Iterator[Step]:
    root = shlex.quote(str(about.store.layout.root))
    for row in about.store.failures(about.grid).iter_rows(named=True):
        reason = str(row["reason"] or "unknown")
        words = [f"grid={about.grid}", *([f"reason={reason}"] if row["reason"] else [])]
        left = "it as a result" if row["n"] == 1 else "them as results"
        what = f"train {count(row['n'], 'failed trial')} again, or leave {left}"
        command = f"ablate retry --failed {' '.join(map(shlex.quote, words))} --campaign {root}"
        yield what, f"{reason}: {row['message']}" if row["message"] else reason, command


def _outstanding(states: Mapping[str, int]) -> Iterator[Step]:
    running = states.get("running", 0)
    if n := states.get("not finite", 0):
        why = "ended, and the value is no finite number: comparisons count that as failed"
        yield f"see to {count(n, 'trial')} without a finite value", why, ""
    if n := states.get("unreadable", 0):
        why = "finished, and no readable file has the result"
        yield f"train {count(n, 'trial')} again", why, "ablate run SPEC --rerun-stale"
    if running:
        yield f"wait for {count(running, 'running trial')}", "their values are not known yet", "ablate watch"
    if n := states.get("pending", 0):
        how = "the run that is on takes them up; once it has ended, ablate run SPEC" if running else "ablate run SPEC"
        yield f"train {count(n, 'outstanding trial')}", "not begun, or to be tried again", how


def _seed_steps(about: GridContext, verdicts: pl.DataFrame) -> Iterator[Step]:
    """List variants by p, then those that no affordable number of seeds decides, then count the rest."""
    open_ = verdicts.filter(pl.col("verdict") == "undecided").sort("p", nulls_last=True, maintain_order=True)
    listed = []
    for cell, reason in open_.select("cell", "reason").iter_rows():  # how many seeds would decide, and their cost
        listed.append((about.look.names[cell], seeds_outlook(reason)))
    listed.sort(key=lambda each: each[1] == UNAFFORDABLE)
    for name, why in listed[:MOST_UNDECIDED]:
        if why == UNAFFORDABLE:
            yield f"leave {name} undecided", why, ""
        else:
            yield f"more seeds for {name}", why, _MORE_SEEDS
    if (more := len(listed) - MOST_UNDECIDED) > 0:
        yield f"more seeds for {count(more, 'more undecided cell')}", "listed under Compare", ""
