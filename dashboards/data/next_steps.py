"""Next steps for a grid: failed trials, outstanding trials, seeds that would decide."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import polars as pl

from dashboards.data.formatting import count
from dashboards.data.grid_context import GridContext
from store.statistics.arms import TOO_FEW

MOST_UNDECIDED: Final = 8
MOST_REASONS: Final = 4
_HOPELESS: Final = "no affordable number"
_MORE_SEEDS: Final = "more seeds=... in the spec, for all cells, then ablate run SPEC"
SCHEMA: Final = {"what": pl.String, "why": pl.String, "how": pl.String}


Step = tuple[str, str, str]
"""One thing to do, why, and how: a command, or what to change in the spec."""


def next_steps(
    about: GridContext, states: Mapping[str, int], verdicts: pl.DataFrame | None, unfinished: Collection[str] = ()
) -> pl.DataFrame:
    """List the next steps with reason and command; steps that block verdicts come first.

    Args:
        about: the grid.
        states: how many trials are in each state of `figures.states.STATES`.
        verdicts: those of the grid; None where it cannot be judged.
        unfinished: cells of which trials run or are outstanding: what they show is not the last word.
    """
    steps = [*_retry_steps(about), *_outstanding(states)]
    if verdicts is not None:
        waits = pl.lit(value=True) if about.baseline in unfinished else pl.col("cell").is_in(list(unfinished))
        steps += _waiting(verdicts.filter(waits))
        settled = verdicts.filter(~waits)
        steps += [*_without(settled), *_seed_steps(about, settled)]
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
        yield f"train {count(n, 'trial')} again", why, "ablate run SPEC --again"
    if running:
        yield f"wait for {count(running, 'running trial')}", "their values are not known yet", "ablate watch"
    if n := states.get("pending", 0):
        how = "the run that is on takes them up; once it has ended, ablate run SPEC" if running else "ablate run SPEC"
        yield f"train {count(n, 'outstanding trial')}", "not begun, or to be tried again", how


def _waiting(verdicts: pl.DataFrame) -> Iterator[Step]:
    """List unfinished variants without a decision."""
    if n := verdicts.filter(pl.col("verdict").is_in(["undecided", "no verdict"])).height:
        why = "undecided or without a verdict so far, with trials of theirs or of the baseline outstanding"
        yield f"wait for {count(n, 'verdict')}", why, ""


def _seed_steps(about: GridContext, verdicts: pl.DataFrame) -> Iterator[Step]:
    """List variants by p, then those that no affordable number of seeds decides, then count the rest."""
    open_ = verdicts.filter(pl.col("verdict") == "undecided").sort("p", nulls_last=True, maintain_order=True)
    told = [
        (about.look.names[cell], _what_decides(reason)) for cell, reason in open_.select("cell", "reason").iter_rows()
    ]
    told.sort(key=lambda each: each[1].startswith(_HOPELESS))
    for name, why in told[:MOST_UNDECIDED]:
        if why.startswith(_HOPELESS):
            yield f"leave {name} undecided", why, ""
        else:
            yield f"more seeds for {name}", why, _MORE_SEEDS
    if (more := len(told) - MOST_UNDECIDED) > 0:
        yield f"see to {count(more, 'more undecided cell')}", "listed under Compare", ""


def _without(verdicts: pl.DataFrame) -> Iterator[Step]:
    """Why others have no verdict, the commonest reason first."""
    found = verdicts.filter(pl.col("verdict") == "no verdict")
    for reason, n in Counter(found["reason"].to_list()).most_common(MOST_REASONS):
        yield f"see to {count(n, 'variant')} without a verdict", reason, _MORE_SEEDS if TOO_FEW in reason else ""


def _what_decides(reason: str) -> str:
    """Extract how many seeds would decide, and their cost, from the reason for no decision."""
    return reason.rpartition("; Holm p ")[2].partition("; ")[2]
