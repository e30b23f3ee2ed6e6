"""The cost of the runs of a grid, as a line and as a table."""

from collections.abc import Sequence

import polars as pl
from markdown import table

from ablate.papers.results.grid_results import GridResult
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.files.plans import added_cells


def describe_cost(results: Sequence[GridResult]) -> str:
    costs = [result.cost for result in results]
    trials, hours = (sum(cost[name] for cost in costs) for name in ("trials", "hours"))
    devices, threads = (sorted({each for cost in costs for each in cost[name]}) for name in ("devices", "threads"))
    packages = [package for cost in costs for versions in cost["versions"] for package in versions.items()]
    made = ", ".join(dict.fromkeys(f"{name} {version}" for name, version in packages if version))
    each = f"{threads[0]} thread" if threads == [1] else f"{threads} threads"
    places = sorted({place for cost in costs for place in cost.get("processors", ())})
    where = f" of {', '.join(places)}" if places else ""
    return f"{trials} trials, {hours:.1f} hours of one {', '.join(devices)} process with {each}{where}; {made}."


def write_costs(result: GridResult, _: GridMeasure) -> str:
    """Write parameters, the time of a training step of the fastest run, and the peak memory of each variant."""
    costs = result.rows.filter(source="cost").pivot("name", index=["cell", "label", "seed"], values="value")
    costs = costs.filter(~pl.col("cell").is_in(list(added_cells(result.header))))
    cells = costs.group_by("cell", "label", maintain_order=True).agg(
        pl.len().alias("runs"),
        pl.col("parameters").max(),
        step=1000 * pl.col("train_s_per_step").min(),
        memory=pl.col("memory_bytes").max() / 1e6,
    )
    base = cells.filter(cell=result.header["baseline"])["step"][0]
    rows = [
        (
            row["label"],
            f"{row['parameters']:,.0f}",
            f"{row['step']:.1f} ms",
            f"{row['step'] / base:.2f}",
            f"{row['memory']:,.0f} MB",
        )
        for row in cells.sort("step").rows(named=True)
    ]
    heads = (
        "cell",
        "parameters",
        "a training step, fastest run",
        "times the baseline",
        "peak memory, most of the runs",
    )
    runs = f"{result.header['grid']}: n = {cells['runs'].min()} runs of a cell"
    return f"{runs}; memory is that of a process, with torch and evaluation.\n\n{table(heads, rows)}"
