"""The command that reads runs of other trackers into a campaign: import."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ablate.grid.errors import AblateError, NotFoundError, SpecError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.runners.cli.options import Campaign, flag_group
from ablate.runners.cli.resolve import CAMPAIGNS, find_campaign
from ablate.runners.output import format_count, tell, write_table

if TYPE_CHECKING:
    from ablate.store.external_runs.imported_config import What
    from ablate.store.external_runs.imported_runs import Imported

Names = Annotated[Sequence[str], Parameter(negative="")]


@flag_group
class WhatIsWhere:
    """Where label, seed and axes of runs are. An entry is one of a run's config, also inside another: model.width.

    Parameters
    ----------
    label
        The variant of a run: a text with entries in braces, such as "{optimiser} {lr}". Default what the file says, as
        the group in W&B, else the levels of the axes, else the run's name.
    seed
        The entry that is the seed, or the seed itself, as --seed 0.
    axis
        An entry that is an axis, or NAME=ENTRY; repeat it for more. Default the entries that differ between these runs.
    without
        An entry that makes no difference, such as a directory; repeat it for more.
    named
        The pattern of the runs' names, with entries in braces that it adds: "{optimiser}/seed{seed}".
    step
        The column of a CSV file that has the steps.
    evaluation
        A value that is an evaluation, not a metric of training; repeat it for more. Those at a point always are.
    """

    label: str | None = None
    seed: str = "seed"
    axis: Names = ()
    without: Names = ()
    named: str | None = None
    step: str = "step"
    evaluation: Names = ()

    def read_options(self, measure: str) -> "What":
        """Return these options; a measure is an evaluation, too."""
        from ablate.store.external_runs.imported_config import What

        return What(
            label=self.label,
            seed=self.seed,
            axes=_axes(self.axis),
            without=self.without,
            named=self.named,
            step=self.step,
            evaluations=(*self.evaluation, measure),
        )


def import_(
    *paths: Path,
    grid: str = "imported",
    campaign: Campaign = None,
    what: WhatIsWhere = WhatIsWhere(),
    measure: str | None = None,
    baseline: str | None = None,
) -> int:
    """Read runs of TensorBoard, W&B (offline) or CSV into a grid of logged runs.

    A run that was imported before adds nothing. docs/export.md shows examples.

    Parameters
    ----------
    paths
        Files, or directories with files of runs.
    grid
        The grid that the runs are logged into; it is made if need be, as is the campaign.
    measure
        The evaluation by which the grid is compared, as val_loss or accuracy:higher.
    baseline
        The label with which others are compared.
    """
    from ablate.store.campaign import Campaign as Results
    from ablate.store.external_runs.imported_runs import Imported, import_runs

    if not paths:
        raise SpecError("there is nothing to import; name the files of runs, or directories with such")
    root = campaign or _find_or_name(grid)
    name, _, better = (measure or "").partition(":")
    told, rows = dict[str, int](), list[Imported]()
    for each in import_runs(root, grid, paths, what.read_options(name)):
        if isinstance(each, Imported):
            rows.append(each)
        else:
            tell(*{str(each)} - told.keys())
            told.setdefault(str(each), each.exit_code if isinstance(each, AblateError) else 0)
    _write_runs(rows)
    faults = [*_list_misnamed(root, grid, rows, [*filter(None, (name, *what.evaluation))], baseline)]
    tell(*map(str, faults))
    if (name or baseline) and not faults:
        judged = {"name": name, **({"better": better} if better else {})} if name else None
        Results(root).grid(grid, baseline=baseline, measure=judged)
    tell(f"{format_count(sum(row.state != 'known' for row in rows), 'run')} added to grid {grid} of {root}")
    return next(filter(None, [*told.values(), *(fault.exit_code for fault in faults)]), 0)


def _write_runs(rows: "Sequence[Imported]") -> None:
    if rows:
        write_table(["run", "label", "seed", "state", "metrics", "evaluations"], [row[:6] for row in rows])
    if len(rows) == len({row.label for row in rows}) > 2 and len({row.seed for row in rows}) > 1:
        tell(
            "each run has a label of its own, so that no seeds are paired: name the axes by --axis, or leave out what "
            "makes no difference by --without"
        )


def _find_or_name(grid: str) -> Path:
    """Find the campaign that there is; if there is none, name one like the grid."""
    try:
        return find_campaign(None)
    except NotFoundError:
        return CAMPAIGNS / grid


def _list_misnamed(
    root: Path, grid: str, rows: "Sequence[Imported]", evaluations: Sequence[str], baseline: str | None
) -> Iterator[NotFoundError]:
    """Yield what was named and is not there."""
    from ablate.store.external_runs.logged_plans import logged_lines
    from ablate.store.files.layout import Layout

    names = sorted({name for row in rows for name in row.names})
    for name in evaluations:
        if rows and name not in names:
            has = some(names, 12)
            yield NotFoundError(f"no run has a value {name!r}; they have {has}{suggest_name(name, names)}")
    labels = sorted({line["label"] for line in logged_lines(Layout(root), grid)})
    if rows and baseline is not None and baseline not in labels:
        has = some(labels, 12)
        yield NotFoundError(f"no run has the label {baseline!r}; they have {has}{suggest_name(baseline, labels)}")


def _axes(words: Sequence[str]) -> dict[str, str] | None:
    """Return the entry of each axis; None if no axis is named."""
    from ablate.grid.names import axis_names

    if not words:
        return None
    pairs = [(entry or name, name if entry else None) for name, _, entry in (word.partition("=") for word in words)]
    return dict(zip(axis_names(pairs), (path for path, _ in pairs), strict=True))
