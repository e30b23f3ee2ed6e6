"""What a run would do, before it does: counts, what the rules left out, parameters, and how long it takes."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

from grid import Grid, Spec
from runners.estimate import Durations, Estimate, estimate
from runners.survey import Survey, Surveyed, survey
from store.layout import Layout


class Pruned(NamedTuple):
    """How many cells a rule left out."""

    reason: str
    cells: int


class GridPlan(NamedTuple):
    """One grid of a plan."""

    name: str
    cells: int
    trials: int
    pruned: tuple[Pruned, ...]


class OperatorPlan(NamedTuple):
    """One operator of a plan."""

    grid: str
    operator: str
    trials: int
    parameters: int | None
    """All of the model; None where nobody said how to count them."""
    operator_parameters: int | None


@final
@dataclass(frozen=True)
class Plan:
    """What a run of some grids in a campaign would do; trials that grids share are counted once."""

    root: Path
    grids: tuple[GridPlan, ...]
    operators: tuple[OperatorPlan, ...]
    trials: tuple[Surveyed, ...]
    ok: int
    failed: int
    running: int
    pending: int
    to_do: int
    estimate: Estimate


@final
@dataclass(frozen=True)
class PlanOptions:
    """How to plan. `parameters` counts (all, the operator's) of a trial; `seconds` says how long a trial takes."""

    workers: int = 1
    retry: bool = False
    parameters: Callable[[Any], tuple[int, int]] | None = None
    seconds: Callable[[Any], float | None] | None = None
    """Asked for a few operators, where the campaign has no finished trial to go by; None if it cannot tell."""


def plan_campaign(root: Path | str, grids: Sequence[Grid], options: PlanOptions | None = None) -> Plan:
    """Plan `grids` in the campaign at `root`, which need not exist; writes nothing.

    Raises:
        SpecError: a grid is invalid, or two have the same name.
    """
    options = options or PlanOptions()
    layout = Layout(Path(root).resolve())
    found = survey(layout, grids, retry=options.retry)
    examples = _Examples(grids)
    return Plan(
        root=layout.root,
        grids=tuple(map(_grid_plan, grids)),
        operators=tuple(_operators(found, examples, options)),
        trials=found.trials,
        ok=found.count("ok"),
        failed=found.count("failed"),
        running=found.count("running"),
        pending=found.count("pending"),
        to_do=len(found.to_do),
        estimate=estimate(found.to_do, Durations(found), examples.of, options.seconds).shared_by(options.workers),
    )


def _grid_plan(grid: Grid) -> GridPlan:
    header = grid.header()
    rules = tuple(Pruned(rule["reason"], rule["count"]) for rule in header["rules"])
    return GridPlan(grid.name, header["cells"], header["trials"], rules)


@final
class _Examples:
    """The first trial of each (grid, operator), looked for when it is first needed."""

    def __init__(self, grids: Sequence[Grid]) -> None:
        self._grids = {grid.name: grid for grid in grids}
        self._found: dict[str, dict[str, Spec]] = {}

    def of(self, grid: str, operator: str) -> Spec:
        if grid not in self._found:
            first: dict[str, Spec] = {}
            for planned in self._grids[grid].cells():
                first.setdefault(planned.operator, planned.trial)
            self._found[grid] = first
        return self._found[grid][operator]


def _operators(found: Survey, examples: _Examples, options: PlanOptions) -> Iterator[OperatorPlan]:
    counts = Counter((trial.grid, trial.operator) for trial in found.trials)
    for (grid, operator), trials in counts.items():
        total, own = options.parameters(examples.of(grid, operator)) if options.parameters else (None, None)
        yield OperatorPlan(grid, operator, trials, total, own)
