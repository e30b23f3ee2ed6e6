"""Effects of left-out runs on a factorial analysis, in sentences."""

import polars as pl

from store.statistics.design import Term, usable


def left_out(values: pl.DataFrame) -> list[str]:
    """How many runs of `values` (as `factorial` takes them) have no value and why, and what follows."""
    kept = usable(values).height
    if kept == values.height:
        return []
    if "status" not in values.columns:
        return [f"{values.height - kept} of {values.height} planned runs are left out"]
    lost = (
        values.select("value", "status")
        .filter(~_finite())
        .with_columns(pl.when(status="ok").then(pl.lit("without a finite value")).otherwise("status").alias("status"))
    )
    counts = sorted(lost["status"].value_counts().rows(), key=lambda row: (-row[1], row[0]))
    told = ", ".join(f"{n} {status}" for status, n in counts)
    found = [f"{values.height - kept} of {values.height} planned runs are left out: {told}"]
    outstanding = lost.filter(pl.col("status").is_in(["pending", "running"])).height
    if outstanding:
        found.append(f"preliminary: {outstanding} of {values.height} planned runs outstanding")
    return found


def failed_unequally(values: pl.DataFrame, term: Term) -> str:
    """Where runs failed, if not alike at all levels of the axis; empty otherwise, and for an interaction."""
    if len(term.factors) > 1 or "status" not in values.columns:
        return ""
    (axis,) = term.factors
    failed = (pl.col("status") == "failed") | ((pl.col("status") == "ok") & ~_finite() & pl.col("value").is_not_null())
    counts = (
        values.filter(pl.col(axis.name).is_not_null())
        .group_by(pl.col(axis.name).cast(pl.String).alias("level"), maintain_order=True)
        .agg(failed.sum().alias("failed"), pl.len().alias("runs"))
    )
    if (counts["failed"] / counts["runs"]).n_unique() < 2:
        return ""
    lost = [level for level, n, runs in counts.rows() if n == runs]
    told = [f"{n} of {runs} with {level}" for level, n, runs in counts.rows() if 0 < n < runs]
    parts = [f"every run with {' and with '.join(lost)} failed, so it has no mean"] if lost else []
    parts += [f"runs failed unequally ({', '.join(told)}), so means are of survivors"] if told else []
    return "; ".join(parts)


def _finite() -> pl.Expr:
    return (pl.col("value").is_not_null() & pl.col("value").is_finite()).fill_null(value=False)
