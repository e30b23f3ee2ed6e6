"""The measure of a page: the grid's own, or another measurement at one of its points.

In an address that is one short text: "mse@sigma_f=5,sigma_x=1".
"""

from collections.abc import Mapping
from typing import Literal

import polars as pl

from dashboards.app.address import Address
from dashboards.app.page import Control, PageView, grid_of, memoise
from dashboards.data.captions import axis_title, describe_measure
from dashboards.data.formatting import BETWEEN, point
from dashboards.data.user_errors import catch_user_error, require
from store import Store
from store.analysis.metrics import direction
from store.analysis.verdicts import GridMeasure, measure_of


class MeasuredAddress(Address):
    """The grid and its measure."""

    measure: str | None = None  # as `text_of` writes it; None is the grid's own
    better: Literal["lower", "higher"] | None = None
    """None takes the direction of the grid's measure, or the known one of another, else "lower"."""


def text_of(name: str, at: Mapping[str, float]) -> str:
    """A measurement at a point: "mse@sigma_f=5,sigma_x=1"; "loss" where there is only one."""
    where = ",".join(f"{axis}={value:.12g}" for axis, value in sorted(at.items()))
    return f"{name}@{where}" if where else name


def measurements(store: Store, grid: str) -> dict[str, tuple[str, dict[str, float]]]:
    """Everything that finished runs of `grid` have as one number, by `text_of`: name and point; evaluations first.

    A training metric that an evaluation is called like is not among them: its name means the evaluation, as in
    `Store.final`.
    """
    found = store.sql(
        "SELECT DISTINCT source, name, point FROM v_final WHERE grid = $grid ORDER BY source, name, point::VARCHAR",
        {"grid": grid},
    )
    judged = set(found.filter(source="evaluation")["name"])
    kept = found.filter((pl.col("source") == "evaluation") | ~pl.col("name").is_in(list(judged)))
    rows = [(str(name), dict(at)) for name, at in kept.select("name", "point").iter_rows()]
    rows.sort(key=lambda row: not row[1])  # evaluations, which have a point, come first
    return {text_of(*row): row for row in rows}


def label_measurements(known: Mapping[str, tuple[str, dict[str, float]]]) -> dict[str, str]:
    """Options of a control, of what `measurements` finds."""
    return {text: name + (f"{BETWEEN}{point(at)}" if at else "") for text, (name, at) in known.items()}


def _own_name(view: PageView) -> str | None:
    return (grid_of(view).header["measure"] or {}).get("name")


@memoise
def judged_by(view: PageView) -> GridMeasure:
    """Return the measure of the page.

    Another measurement than the grid's own is compared on the linear scale, without a margin that counts as equal.
    Raises Unknown if no finished run has the named one; SpecError if the grid has none and none is named.
    """
    about, wanted, better = grid_of(view), view.address.measure, view.address.better
    changes = {} if better is None else {"better": better}
    if wanted is None:
        return measure_of(view.store, about.grid, changes)
    known = measurements(view.store, about.grid)
    name, at = known[require(f"a finished run of {about.grid!r}", "measure", wanted, known)]
    other = {} if name == _own_name(view) else {"scale": "linear", "rope": 0.0, "better": direction(name) or "lower"}
    return measure_of(view.store, about.grid, {**other, "name": name, "point": at, **changes})


def warn_of_guess(view: PageView) -> str:
    """Warn if neither the grid, a task nor the address gives the direction of the measure."""
    name = judged_by(view).name
    if name == _own_name(view) or view.address.better is not None or direction(name) is not None:
        return ""
    return f"The direction of {name} is unknown; lower is taken as better."


def unit(view: PageView) -> str:
    """The unit of the grid's own measure; nothing is known of others."""
    return grid_of(view).unit if judged_by(view).name == _own_name(view) else ""


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
    about = grid_of(view)
    known = measurements(view.store, about.grid)
    own = about.measure
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
