"""The measure of a page: the grid's own, or another measurement at one of its points."""

from collections.abc import Mapping
from typing import Literal

from ablate.dashboards.app.address import Address
from ablate.dashboards.app.page import Control, PageView, grid_of, memoise
from ablate.dashboards.data.captions import axis_title, describe_measure
from ablate.dashboards.data.formatting import BETWEEN, point
from ablate.dashboards.data.user_errors import catch_user_error
from ablate.store.analysis.measurements import find_measure, measurements, text_of
from ablate.store.analysis.metrics import direction
from ablate.store.analysis.row_labels import unit_of
from ablate.store.analysis.verdicts import GridMeasure, measure_of


class MeasuredAddress(Address):
    """The grid and its measure."""

    measure: str | None = None  # as `ablate.store.analysis.measurements.text_of` writes it; None is the grid's own
    better: Literal["lower", "higher"] | None = None
    """None takes the direction of the grid's measure, or the known one of another, else "lower"."""


def label_measurements(known: Mapping[str, tuple[str, dict[str, float]]]) -> dict[str, str]:
    """Options of a control, of what `measurements` finds."""
    return {text: name + (f"{BETWEEN}{point(at)}" if at else "") for text, (name, at) in known.items()}


def _own_name(view: PageView) -> str | None:
    return (grid_of(view).header["measure"] or {}).get("name")


@memoise
def judged_by(view: PageView) -> GridMeasure:
    """Return the measure of the page.

    Raises NotFoundError if no finished run has the named one; SpecError if the grid has none and none is named.
    """
    context, wanted, better = grid_of(view), view.address.measure, view.address.better
    changes = {} if better is None else {"better": better}
    if wanted is None:
        return measure_of(view.store, context.grid, changes)
    return find_measure(view.store, context.grid, wanted, changes)


def warn_of_guess(view: PageView) -> str:
    """Warn if neither the grid, a task nor the address gives the direction of the measure."""
    name = judged_by(view).name
    if name == _own_name(view) or view.address.better is not None or direction(name) is not None:
        return ""
    return f"The direction of {name} is unknown; lower is taken as better."


def unit(view: PageView) -> str:
    """The unit of the measure; empty if it has none."""
    return unit_of(grid_of(view).header, judged_by(view).name)


def words(view: PageView) -> str:
    """The measure in a sentence, with its unit."""
    return describe_measure(judged_by(view), unit(view))


def title(view: PageView) -> str:
    """The measure on an axis, with its unit and direction."""
    return axis_title(judged_by(view), unit(view))


def columns(view: PageView) -> dict[str, str]:
    """Measure, unit and direction as columns of a file."""
    measure = judged_by(view)
    return {"measure": text_of(measure.name, measure.point), "unit": unit(view), "better": measure.better}


def controls(view: PageView) -> tuple[Control, Control]:
    """Pickers of the measure and of its direction."""
    context = grid_of(view)
    known = measurements(view.store, context.grid)
    own = context.measure
    usual = None if own is None else text_of(own.name, own.point)
    if usual is not None and usual not in known:  # its point leaves out coordinates that do not vary
        usual = next((text for text, (name, at) in known.items() if own and is_of(own, name, at)), None)
    guess, _ = catch_user_error(lambda: warn_of_guess(view))
    undirected = view._replace(address=view.address.model_copy(update={"better": None}))
    usually, _ = catch_user_error(lambda: judged_by(undirected).better)
    ways = {"lower": "lower, a guess" if guess else "lower", "higher": "higher"}
    choices = label_measurements(known)
    return (
        Control("measure", "Measure", "choice", choices, "What cells are compared by", usual, None, ("better",)),
        Control("better", "Better is", "choice", ways, guess or "", usually or "lower"),
    )


def is_of(measure: GridMeasure, name: str, at: Mapping[str, float]) -> bool:
    """Whether a measurement at a point is the measure, whose point may leave out coordinates."""
    return name == measure.name and all(at.get(axis) == value for axis, value in measure.point.items())
