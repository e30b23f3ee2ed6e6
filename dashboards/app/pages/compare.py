"""Compare: every variant against the baseline, with the verdict and what it rests on."""

from collections.abc import Sequence

import polars as pl

from dashboards.app.address import Address
from dashboards.app.page import Control, Option, Page, Shown, Slot, View, grid_of
from dashboards.figures import forest
from dashboards.sections.charts import named
from dashboards.sections.verdict_table import ICONS, marked
from dashboards.seeds import rope_words
from dashboards.subject import Subject, in_order
from store.verdicts import Measure, measure_of, verdicts


class CompareAddress(Address):
    """The grid, and a baseline other than its own."""

    baseline: str | None = None


def judged(view: View) -> tuple[Subject, Measure, pl.DataFrame]:
    """The grid of a view with its measure and verdicts.

    Raises:
        Unknown: there is no grid yet; SpecError where it has no measure or baseline.
    """
    about = grid_of(view)
    wanted = view.address.baseline
    measure = measure_of(view.store, about.grid, None)
    found = verdicts(view.store, about.grid, baseline=wanted)
    return about, measure, in_order(found, [cell.cell for cell in about.cells])


def _differences(view: View) -> Shown:
    about, measure, found = judged(view)
    drawn = forest.differences(found, measure)
    if drawn["difference"].is_null().all():
        return Shown(message="No difference from the baseline can be computed yet.")
    rope = rope_words(measure.rope, measure.scale, about.unit)
    caption = (
        f"{measure.name} of each variant against {about.baseline_name}, paired by seed; {measure.better} is better. "
        f"Point: mean difference. Bar: {(1 - measure.alpha) * 100:g} % t interval over seeds of that comparison alone. "
        f"Grey band: differences within {rope}, which count as equal."
    )
    figure = forest.draw_differences(drawn, about.look, measure, {word: marked(word) for word in ICONS})
    return Shown(figure, caption, named(drawn, about))


def _controls(view: View) -> Sequence[Control]:
    about = grid_of(view)
    cells = [Option(cell.cell, about.look.names[cell.cell]) for cell in about.cells]
    return (Control("baseline", "Baseline", "choice", cells),)


COMPARE = Page(
    name="compare",
    title="Compare",
    letter="c",
    about="Which variants differ from the baseline, by how much, and is it real?",
    address=CompareAddress,
    controls=_controls,
    slots=(Slot("differences", "Differences from the baseline", _differences),),
)
