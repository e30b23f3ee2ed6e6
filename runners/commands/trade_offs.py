"""What results cost: learning curves at equal cost, and which cells another one beats in everything."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, final

from cyclopts import Parameter

from runners.commands.options import Csv, Json
from runners.output import write, write_frame

Against = Annotated[tuple[str, ...], Parameter(negative="")]


@final
@dataclass(frozen=True)
class Cost:
    """At which cost curves are compared.

    Parameters
    ----------
    by
        What is made equal.
    budget
        Compare after so much; default what every run reached that did not break off.
    level
        Also compare the cost to reach this value.
    """

    by: Literal["steps", "tokens", "seconds"] = "tokens"
    budget: float | None = None
    level: float | None = None


Costs = Annotated[Cost, Parameter(name="*")]
"""Flattened."""

ALL = Cost()


def curves(
    metric: str = "loss",
    /,
    *,
    at: Costs = ALL,
    campaign: Path | None = None,
    grid: str | None = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> int:
    """Learning curves against the baseline's at equal cost, paired by seed. docs/factorial.md says what is compared.

    Parameters
    ----------
    metric
        A training metric.
    campaign
        The campaign directory; default the only one below campaigns/.
    grid
        One of its grids, when it has several.
    as_json
        Print JSON.
    as_csv
        Print CSV.
    """
    from runners.commands.finding import choose_grid, find_campaign
    from store.learning import compare_learning
    from store.store import Store

    with Store.open(find_campaign(campaign)) as store:
        found = compare_learning(store, choose_grid(store, grid), metric, at.by, budget=at.budget, level=at.level)
    if not as_json and not as_csv:
        write(f"{metric} at equal {at.by}; the last value recorded at or before it")
    columns = ("label", "question", "at", "pairs", "value", "baseline_value", "percent", "p_holm", "ahead", "behind")
    headings = ("cell", "question", "at", "pairs", "value", "baseline", "difference %", "p (Holm)", "ahead", "behind")
    shown = {**dict(zip(columns, headings, strict=True)), "note": "note"}
    write_frame("curves", found, as_json=as_json, as_csv=as_csv, shown=shown)
    return 0


def pareto(
    *,
    against: Against = ("train_s",),
    campaign: Path | None = None,
    grid: str | None = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> int:
    """Which cells are shown to be worse than another in the measure and in cost, which are not, and which are untold.

    Parameters
    ----------
    against
        train_s, memory_bytes, parameters, joules, tokens_per_s, flops_per_s, or a measurement that is better when
        lower; repeat it for more.
    campaign
        The campaign directory; default the only one below campaigns/.
    grid
        One of its grids, when it has several.
    as_json
        Print JSON.
    as_csv
        Print CSV.
    """
    import polars as pl

    from runners.commands.finding import choose_grid, find_campaign
    from store.pareto import pareto as pareto_of
    from store.store import Store

    with Store.open(find_campaign(campaign)) as store:
        found = pareto_of(store, choose_grid(store, grid), against)
    shown = {name: {"label": "cell"}.get(name, name) for name in found.columns if name not in ("cell", "untold")}
    if not as_json and not as_csv:
        found = found.with_columns(pl.col("dominated_by").list.join(", "))
    write_frame("pareto", found, as_json=as_json, as_csv=as_csv, shown=shown)
    return 0
