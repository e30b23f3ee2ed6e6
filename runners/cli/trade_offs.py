"""Cost of results: learning curves at equal cost, and dominated cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from cyclopts import Parameter

from runners.cli.options import GRID_FLAGS, ONE_GRID
from runners.output import describe_measure, format_count, write, write_frame

if TYPE_CHECKING:
    from store.analysis.pareto import Way
    from store.analysis.verdicts import GridMeasure

Against = Annotated[tuple[str, ...], Parameter(negative="")]


@final
@dataclass(frozen=True)
class CostAxis:
    """At which cost curves are compared.

    Parameters
    ----------
    by
        What is made equal.
    budget
        Compare after so much, between the first and the last recorded cost; default what every run reached that did
        not break off.
    level
        Also compare the cost to reach this value.
    """

    by: Literal["steps", "tokens", "seconds"] = "tokens"
    budget: float | None = None
    level: float | None = None


Costs = Annotated[CostAxis, Parameter(name="*")]
"""Flattened."""

ALL = CostAxis()


def curves(metric: str = "loss", /, *, at: Costs = ALL, of: GRID_FLAGS = ONE_GRID) -> int:
    """Learning curves against the baseline's at equal cost, paired by seed. docs/factorial.md says what is compared.

    Parameters
    ----------
    metric
        A training metric.
    """
    from store.analysis.learning_curves import compare_learning, rule_of

    with of.open() as (store, name, warnings):
        found = compare_learning(store, name, metric, at.by, budget=at.budget, level=at.level)
        rule = rule_of(store, name, metric)
    if of.as_text:
        write(f"{name}: {metric} at equal {at.by}, {rule.better} is better; the last value recorded at or before it")
        write(
            f"differences on the {rule.scale} scale, of costs by ratios, paired by seed; Holm over "
            f"{format_count(found['cell'].n_unique(), 'cell')} of a question, alpha {rule.alpha:g}"
        )
    shown = _CURVES | {"low": f"{100 * (1 - rule.alpha):g} % from"}
    write_frame("curves", found, as_json=of.as_json, as_csv=of.as_csv, shown=shown, warnings=warnings)
    return 0


_CURVES = {
    "label": "cell",
    "question": "question",
    "at": "at",
    "pairs": "pairs",
    "value": "value",
    "baseline_value": "baseline",
    "percent": "difference %",
    "difference": "difference",
    "low": "from",
    "high": "to",
    "p_holm": "p (Holm)",
    "ahead": "ahead",
    "behind": "behind",
    "note": "note",
}


def pareto(*, against: Against = ("train_s",), of: GRID_FLAGS = ONE_GRID) -> int:
    """Which cells are shown to be worse than another in the measure and in cost, which are not, and which are untold.

    Parameters
    ----------
    against
        train_s, memory_bytes, parameters, flops, joules, tokens_per_s, flops_per_s, a measurement or a probe; repeat it
        for more. The title says which way each is better; what nothing is known of is taken as better when lower.
    """
    import polars as pl

    from store.analysis.pareto import pareto as pareto_of, rule
    from store.analysis.verdicts import measure_of

    with of.open() as (store, name, warnings):
        found = pareto_of(store, name, against)
        header, rules = store.grid(name), measure_of(store, name, None)
        ways = {each: rule(store, name, each) for each in against if each != rules.name}
    headings = {"label": "cell", "n": "seeds", "dominated_by": "dominated by", "untold": "not told apart from"}
    shown = {column: headings.get(column, column) for column in found.columns if column != "cell"}
    if of.as_text:
        _write_pareto_title(header, rules, ways)
        found = found.with_columns(pl.col("dominated_by", "untold").list.join(", "))
    write_frame("pareto", found, as_json=of.as_json, as_csv=of.as_csv, shown=shown, warnings=warnings)
    return 0


def _write_pareto_title(header: Mapping[str, Any], rules: "GridMeasure", ways: Mapping[str, "Way"]) -> None:
    others = [
        f"{name} ({way.better} is better{'' if way.known else ', as nothing says which way'})"
        for name, way in ways.items()
    ]
    write(f"{describe_measure(header)} ({rules.better} is better) against {', '.join(others)}")
    cells = header["cells"]
    write(
        f"one-sided t tests paired by seed, alpha {rules.alpha:g}: Holm over {cells * (cells - 1)} ordered pairs "
        f"(dominated), over {format_count(cells, 'cell')} (on the front)"
    )
