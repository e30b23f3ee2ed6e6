"""The command that reads runs of other trackers into a campaign: import."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ablate.grid.errors import SpecError
from ablate.runners.cli.options import Campaign, flag_group
from ablate.runners.cli.resolve import find_campaign
from ablate.runners.output import format_count, tell, write_table

if TYPE_CHECKING:
    from ablate.store.external_runs.imported_config import What

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
    grid: str,
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
        raise SpecError("import takes the files of runs, or directories with such; got none")
    root = campaign or find_campaign(None)
    name, _, better = (measure or "").partition(":")
    codes, rows = list[int](), list[Imported]()
    for each in import_runs(root, grid, paths, what.read_options(name)):
        if isinstance(each, Imported):
            rows.append(each)
        else:
            tell(str(each))
            codes.append(each.exit_code)
    if name or baseline:
        judged = {"name": name, **({"better": better} if better else {})} if name else None
        Results(root).grid(grid, baseline=baseline, measure=judged)
    if rows:
        write_table(["run", "label", "seed", "state", "metrics", "evaluations"], rows)
    tell(f"{format_count(sum(row.state != 'known' for row in rows), 'run')} added to grid {grid} of {root}")
    return codes[0] if codes else 0


def _axes(words: Sequence[str]) -> dict[str, str] | None:
    """Return the entry of each axis; None if no axis is named."""
    from ablate.grid.names import axis_names

    if not words:
        return None
    pairs = [(entry or name, name if entry else None) for name, _, entry in (word.partition("=") for word in words)]
    return dict(zip(axis_names(pairs), (path for path, _ in pairs), strict=True))
