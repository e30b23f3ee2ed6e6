"""Overview: how far a grid is, what it says so far, what it can say at all, what failed, and what to do next."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from ablate.dashboards.app.address import Address
from ablate.dashboards.app.page import AS_ABOVE, AppPage, Key, PageView, Slot, SlotContent, grid_of, memoise
from ablate.dashboards.app.pages.compare import CompareAddress, checks_of, differences_of, judge_view, list_verdicts
from ablate.dashboards.app.pages.factors import FactorsAddress, level_effects, show_effects
from ablate.dashboards.app.settings import settings_of
from ablate.dashboards.app.table_columns import WIDE, WRAP, columns, link
from ablate.dashboards.data.captions import (
    CLAIMS,
    Checks,
    count_words,
    lead_by_axes,
    name_best,
    progress_words,
    rank_axes,
    tell_seeds,
)
from ablate.dashboards.data.formatting import change, count, entry, join_words, write_minus
from ablate.dashboards.data.grid_context import GridContext
from ablate.dashboards.data.seed_averages import rope_words
from ablate.dashboards.data.two_part_rows import tell_learned
from ablate.dashboards.data.user_errors import catch_user_error, sentence
from ablate.dashboards.figures.states import STATES, draw_shares, draw_states, fits_rows, shares, states
from ablate.dashboards.theme.styles import shared_style
from ablate.grid.names import some
from ablate.store.analysis.judge import NOTHING_LEARNED
from ablate.store.analysis.noise_floor import noise_floor
from ablate.store.analysis.on_check import NONE_LEARNED
from ablate.store.analysis.row_labels import SHARE
from ablate.store.analysis.tuned_check import levels_beyond
from ablate.store.analysis.two_part import two_part
from ablate.store.files.attempt_records import DIVERGED_ADVICE
from ablate.store.statistics import Scale
from ablate.store.statistics.arms import more_seeds_help
from ablate.store.statistics.check import Check
from ablate.store.statistics.verdict import UNAFFORDABLE, seeds_outlook

_MOST_STEPS: Final = 8
_ANSWERS: Final = {
    "on": "ablate evaluate --knockout, if weights were kept; else new trials measure it, own code by run.knockout",
    "control": 'controls="auto" in the Grid, then ablate run SPEC',
    "finished": "longer=2 in the Grid, then ablate run SPEC",
    "tuned": 'over("training.optimiser.lr", [three levels or more], tune=True) among the axes, then ablate run SPEC',
}
"""By check, how to answer one that is unknown."""
_REMEDIES: Final = {
    "tuned": "add {} to the axis with tune=True, then ablate run SPEC",
    "finished": "more training.steps in the spec, then ablate run SPEC",
    "control": "claim no more than the control explains, unless more seeds tell the two apart",
    "noise": "learned=... in the Grid if some runs do not learn; then the table of parts has the verdict",
}
"""By check, how to answer one that failed."""
_NONE: Final = "none below 1"
_EASIER: Final = "longer training, or an easier task, so that some runs learn"
_MORE_SEEDS: Final = "more seeds=... in the spec, for all cells, then ablate run SPEC"


@memoise
def _states(view: PageView) -> tuple[pl.DataFrame, Counter[str]]:
    context = grid_of(view)
    trials = states(view.store, context.grid, [cell.cell for cell in context.cells], context.measure)
    return trials, Counter(trials["state"].to_list())


def _as_compare(view: PageView) -> PageView:
    """The page Compare of the same grid."""
    return view._replace(address=CompareAddress(grid=view.address.grid))


def _as_factors(view: PageView) -> PageView:
    """The page Factors of the same grid."""
    return view._replace(address=FactorsAddress(grid=view.address.grid))


def _lead(view: PageView) -> SlotContent:
    """Show which variant differs, by how much, and if it is real; or the axes where they are more certain."""
    context = grid_of(view)
    result, problem = catch_user_error(lambda: judge_view(_as_compare(view)))
    if result is None:
        return SlotContent(above=_progress_words(view), message=problem or "")
    context, measure, verdicts = result
    best = name_best(context, measure, verdicts, str(context.baseline_label), checks_of(_as_compare(view)))
    axes, doubts, leads = _axes(view)
    shown = show_effects(_as_factors(view)) if leads else differences_of(_as_compare(view))
    if leads:  # a difference that is not shown to be one is noise
        claims = verdicts["verdict"].is_in([*CLAIMS, "equivalent"]).any()
        seeds = tell_seeds(verdicts, len(context.header["seeds"]))
        best = " ".join(filter(None, (best if claims or not seeds else "", seeds)))
    learned = tell_learned(context, two_part(view.store, context.grid, measure=measure._asdict()))
    first, rest = (axes, f"{doubts} {best}") if leads else (best, f"{axes} {doubts}")
    answer = f"{first}\n{learned} {rest}".strip()
    return shown._replace(answer=answer, above=f"{_progress_words(view)} {count_words(verdicts)}.")


def _axes(view: PageView) -> tuple[str, str, bool]:
    """Say which axes matter, if the grid has several, and the doubts; tell whether that comes before the cells."""
    _, measure, verdicts = judge_view(_as_compare(view))
    levels, _ = catch_user_error(lambda: level_effects(_as_factors(view)))
    if levels is None or levels.effects.filter(order=1)["factor"].n_unique() < 2:
        return "", "", False
    return *rank_axes(levels.effects, measure), lead_by_axes(levels.effects, verdicts)


def _verdicts(view: PageView) -> SlotContent:
    return list_verdicts(_as_compare(view), by_seeds=_axes(view)[-1])


def _progress_words(view: PageView) -> str:
    context, (trials, counts) = grid_of(view), _states(view)
    unreadable = max(0, context.header["trials"] - trials.height)  # lines of the plan
    done = {
        "planned": trials.height + unreadable,
        "done": counts["done"] + counts["unreadable"] + counts["not finite"],
        **{state: counts[state] for state in ("failed", "running", "stopped", "lost")},
    }
    return f"{progress_words(done)} {count(len(context.cells), 'cell')}, {count(len(context.header['seeds']), 'seed')}."


def _progress(view: PageView) -> SlotContent:
    context, (trials, counts) = grid_of(view), _states(view)
    known = [(name, state) for name, state in STATES.items() if counts[name]]
    words = {name: f"{state.sign} {state.word}" for name, state in known}
    said = _progress_words(view)
    if counts["not finite"] and context.measure is not None:
        ended = count(counts["not finite"], "trial")
        said += f" Of those done {ended} ended with {context.measure.name} that is no finite number."
    if counts["unreadable"]:
        said += f" {count(counts['unreadable'], 'finished trial')} without a readable result."
    data = trials.select(pl.col("label").alias("cell"), "seed", "trial", "state", pl.col("why").alias("reason"))
    if trials.height == context.header["trials"] == counts["done"]:
        return SlotContent(caption=said, data=data, message=AS_ABOVE)  # the first line of the page says so
    if fits_rows(trials):
        legend = [Key(shared_style(state.color, marker="square"), words[name], name) for name, state in known]
        return SlotContent(draw_states(trials, context.appearance), f"{said} A square per trial.", data, legend)
    grouped = shares(view.store, context.grid, trials)
    by = f"by {grouped.by} and seed" if grouped.by else "by seed"
    caption = f"{said} Trials {by}: how many are {join_words([*words.values()])}; colour: the share that is done."
    return SlotContent(draw_shares(grouped), caption, data)


def _noise(view: PageView) -> SlotContent:
    context = grid_of(view)
    noise = noise_floor(view.store, context.grid)
    if not noise.comparisons:
        why = "; ".join(f"{why} ({count(n, 'variant')})" for why, n in noise.unknown.items())
        return SlotContent(
            message=f"Nothing is known of the noise yet: {why or 'there is no variant beside the baseline'}."
        )
    rows = []
    said = equal = ""
    measure, seeds = context.measure, count(noise.planned, "seed")
    if measure is not None and measure.rope:
        rope = rope_words(measure.rope, measure.scale, context.unit)
        equal = f", unless the seeds show that it lies within the {rope} that count as equal"
    for n, *ends in noise.frame.iter_rows():
        middle, low, high = (_say_smallest(value, noise.scale, context.unit) for value in ends)
        between = f"{low} to {high}" if low != high else ""
        rows.append((f"{n}, planned" if n == noise.planned else str(n), middle, between or middle))
        if n == noise.planned and middle == "–":
            said = f"With {seeds} no verdict can be had; it needs three."
        elif n == noise.planned and middle == _NONE:
            said = f"The {seeds} of this grid find no true difference in four of five repetitions."
        elif n == noise.planned:
            name = "the measure" if measure is None else f"{'odds of ' * (noise.scale == 'logit')}{measure.name}"
            said = (
                f"The {seeds} of this grid find a true difference of {middle} in {name} in four of five repetitions"
                f"{between and f' (the median; {between} by comparison)'}. Smaller ones are found "
                f"less often: what is not found stays undecided{equal}."
            )
    caption = (
        f"{said} Computed from the spread of {noise.comparisons} of {count(noise.family, 'comparison')}, for the "
        "hardest step of Holm's correction; from few seeds the spread itself is rough."
    )
    names = ["paired seeds", "smallest difference that is found", "over comparisons"]
    data = pl.DataFrame(rows, schema=names, orient="row")
    data = data if noise.comparisons > 1 else data.drop("over comparisons")
    return SlotContent(caption=caption, data=data, columns=columns(data))


def _say_smallest(value: float | None, scale: Scale, unit: str) -> str:
    """The difference; `_NONE` if no two shares can differ by so much."""
    beyond = value is not None and value > 1 and scale == "linear" and unit == SHARE
    return _NONE if beyond else change(value, scale).removeprefix("+")


def _next(view: PageView) -> SlotContent:
    verdicts, problem = catch_user_error(lambda: judge_view(_as_compare(view))[2])
    checks = {} if verdicts is None else checks_of(_as_compare(view))
    steps = next_steps(settings_of(_as_compare(view)), _states(view)[1], verdicts, checks)
    message = "" if problem is None else f"What is undecided is not known: {problem}"
    if steps.is_empty() and not message:
        message = "Nothing is left to do: every trial has ended well and every variant has a verdict."
    own = {"what": WRAP, "why": WIDE, "how": WIDE}
    return SlotContent(message=message, data=steps, columns=columns(steps, own) if steps.height else ())


def _failures(view: PageView) -> SlotContent:
    store, (trials, _) = view.store, _states(view)
    not_finite = (
        trials.filter(pl.col("state") == "not finite")
        .group_by(pl.col("why").alias("message"), maintain_order=True)
        .agg(
            pl.lit("no finite value").alias("reason"),
            pl.len().cast(pl.Int64).alias("n"),
            pl.col("trial").first().alias("example"),
            pl.col("label").unique(maintain_order=True).alias("labels"),
        )
    )
    not_finite = not_finite.with_columns(pl.format("it ended, and measured {}", "message").alias("message"))
    failures = pl.concat([store.failures(grid_of(view).grid), not_finite], how="diagonal")
    if failures.is_empty():
        return SlotContent(message=AS_ABOVE)
    failures = failures.with_columns(pl.col("reason").fill_null("unknown"))
    cells = pl.Series("cells", map(entry, failures["labels"].to_list()), pl.String)
    rows = failures.select("reason", "n", cells, "message", "example")
    reasons = failures.group_by("reason").agg(pl.col("n").sum()).sort("n", "reason", descending=[True, False])
    by = ", ".join(f"{reason} {n}" for reason, n in reasons.iter_rows())
    n = int(failures["n"].sum())
    total = count(n, "failed trial") if not_finite.is_empty() else f"{count(n, 'trial')} without a usable value,"
    caption = f"{total} of {count(failures.height, 'kind')} ({by}). Averages leave them out."
    own = {"cells": WRAP, "message": WIDE, "example": link("run", "run", width=150)}
    return SlotContent(caption=caption, data=rows, columns=columns(rows, own))


def _left_out(view: PageView) -> SlotContent:
    """List files in quarantine, and other warnings about these results."""
    store = view.store
    shards = store.bad_shards().with_columns(what=pl.lit("results that are not served"))
    records = store.bad_records().with_columns(what=pl.lit("a record that cannot be read"))
    files = pl.concat([shards, records]).select("file", "what", "reason")
    others = [each for each in store.warnings() if not each.startswith(("the shard ", "the record "))]
    more = " ".join(map(sentence, others))
    if files.is_empty():
        return SlotContent(message=more or AS_ABOVE)
    message = f"Not served, since it could not be read: {count(files.height, 'file')}. The rest is shown. {more}"
    return SlotContent(message=message, data=files, columns=columns(files, {"file": WRAP, "reason": WIDE}))


def next_steps(
    context: GridContext, states: Mapping[str, int], verdicts: pl.DataFrame | None, checks: Checks
) -> pl.DataFrame:
    """List what to do, why, and how: a command, or what to change in the spec.

    `states` counts trials by state. `verdicts` is None if the grid cannot be judged; `checks` are those of its cells.
    """
    steps = []
    for row in context.store.failures(context.grid).iter_rows(named=True):
        if row["reason"] == "diverged":
            steps.append((f"keep {count(row['n'], 'diverged trial')} as a result", row["message"], DIVERGED_ADVICE))
            continue
        words = [f"grid={context.grid}", *([f"reason={row['reason']}"] if row["reason"] else [])]
        why = ": ".join(filter(None, (row["reason"] or "unknown", row["message"])))
        root = shlex.quote(str(context.store.layout.root))
        command = f"ablate retry --failed {' '.join(map(shlex.quote, words))} --campaign {root}"
        steps.append((f"train {count(row['n'], 'failed trial')} again, or keep as a result", why, command))
    if n := states.get("not finite", 0):
        why = "finished, and the value is no finite number: no comparison can use it"
        steps.append((f"see to {count(n, 'trial')} without a finite value", why, ""))
    if n := states.get("unreadable", 0):
        why = "finished, and no readable file has the result"
        steps.append((f"train {count(n, 'trial')} again", why, "ablate run SPEC --rerun-stale"))
    if running := states.get("running", 0):
        what = f"wait for {count(running, 'running trial')}"
        steps.append((what, "their values are not known yet", "ablate status --watch"))
    waiting = [(states[name], name) for name in ("pending", "stopped", "lost") if states.get(name)]
    if waiting:
        why = ", ".join(f"{n} {name}" for n, name in waiting)
        outstanding = count(sum(n for n, _ in waiting), "outstanding trial")
        steps.append((f"train {outstanding}", why, "ablate run SPEC"))
    if verdicts is not None and not (running or waiting):
        steps += _verdict_steps(context, verdicts, checks)
    rows = pl.DataFrame(steps, dict.fromkeys(("what", "why", "how"), pl.String), orient="row")
    return rows.with_columns(pl.col("why").map_elements(write_minus, pl.String))


def _verdict_steps(context: GridContext, verdicts: pl.DataFrame, checks: Checks) -> Iterator[tuple[str, str, str]]:
    """List failed checks, reasons for missing verdicts, undecided variants by p, then unknown checks."""
    claims = verdicts.filter(pl.col("verdict").is_in([*CLAIMS, "equivalent"]))
    failed: dict[Check, list[str]] = {}  # with the claims that share its reason
    for cell in claims["cell"]:
        for check in (each for each in checks[cell] if each.answer == "no"):
            failed.setdefault(check, []).append(context.appearance.names[cell])
    for check, names in [*failed.items()][:_MOST_STEPS]:
        how = _REMEDIES.get(check.name, "").format(join_words(levels_beyond(check.reason)))
        yield f"answer the failed check {check.name} of {some(names, 3)}", check.reason, how
    reasons = Counter(verdicts.filter(verdict="no verdict")["reason"].to_list())
    for reason, n in reasons.most_common(_MOST_STEPS):
        how = _MORE_SEEDS if more_seeds_help(reason) else _EASIER if reason == NOTHING_LEARNED else ""
        yield f"see to {count(n, 'variant')} without a verdict", reason, how
    undecided = verdicts.filter(verdict="undecided").sort("p", nulls_last=True, maintain_order=True)
    for cell, reason in undecided.select("cell", "reason").head(_MOST_STEPS).iter_rows():
        why = seeds_outlook(reason)  # how many seeds would decide, and their cost
        yield f"more seeds for {context.appearance.names[cell]}", why, "" if why == UNAFFORDABLE else _MORE_SEEDS
    yield from unknown_steps(context, claims, checks)


def unknown_steps(context: GridContext, claims: pl.DataFrame, checks: Checks) -> Iterator[tuple[str, str, str]]:
    """List how to answer unknown checks of `claims`, which have a column cell: what, why, and how."""
    cannot = set(_ANSWERS) if context.header.get("logged") else set()
    if "kind" in context.header["base"]:  # only built-in trials leave parts of their operator out
        cannot.add("on")
    for name, how in _ANSWERS.items():
        if name in cannot:
            continue
        unknown = [each for cell in claims["cell"] for each in checks[cell] if each[:2] == (name, "unknown")]
        idle = sum(each.reason.startswith(NONE_LEARNED) for each in unknown)
        if n := len(unknown) - idle:
            yield f"answer the check {name} of {count(n, 'claim')}", "without it no claim is a headline", how
        if idle:
            yield f"answer the check {name} of {count(idle, 'claim')}", NONE_LEARNED, _EASIER


OVERVIEW = AppPage(
    name="overview",
    title="Overview",
    letter="o",
    question="Which component makes a difference, how much, and is it real?",
    address=Address,
    controls=lambda _: (),
    slots=(
        Slot("differences", "Differences", _lead, sets="compare:cell"),
        Slot("verdicts", "Verdicts", _verdicts, "table"),
        Slot("next", "What to do next", _next, "table"),
        Slot("progress", "Trials", _progress),
        Slot("noise", "Noise floor", _noise, "table"),
        Slot("failures", "Failures", _failures, "table"),
        Slot("left-out", "Files left out", _left_out, "table"),
    ),
)
