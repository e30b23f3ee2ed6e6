"""The runs that the page Compare compares, and the grid with names of its tuned settings."""

from ablate.dashboards.app import measures
from ablate.dashboards.app.page import PageView, grid_of, memoise
from ablate.dashboards.data.grid_context import GridContext, name_settings
from ablate.dashboards.data.user_errors import catch_user_error
from ablate.store.analysis.tuned_verdicts import ComparedRuns, nuisance_axes
from ablate.store.analysis.verdicts import compared_runs


def runs_of(view: PageView) -> ComparedRuns:
    """Return the runs that the verdicts of a view compare."""
    measure = measures.judged_by(view)
    return compared_runs(view.store, grid_of(view).grid, measure, baseline=view.address.baseline)


@memoise
def settings_of(view: PageView) -> GridContext:
    """The shown grid as `name_settings` has it; as it is if nothing is tuned, or nothing can be compared."""
    context = grid_of(view)
    runs, _ = catch_user_error(lambda: runs_of(view)) if nuisance_axes(context.header) else (None, None)
    return context if runs is None else name_settings(context, runs)
